// The same package, as CommonJS sees it.
import tenureClient = require("tenure-client");

const tenure: tenureClient.Tenure = tenureClient.connect();
void tenure.mutex("x").run(({ fence }) => fence);
