// What the user of this tab may do, according to the server. Until the server has answered, the page only reads.

import { get } from "./api.js";

/** `roles` is null while they are not known. */
export const access = { roles: null, name: "", open: false };

let asking = false;
export async function learnAccess() {
  if (asking) return;
  asking = true;
  try {
    const { roles, name, open } = await get("v1/me");
    Object.assign(access, { roles, name, open: open === true });
  } catch {
    Object.assign(access, { roles: null, name: "", open: false });
  } finally {
    asking = false;
  }
}

export function mayBreak() {
  return access.roles?.includes("admin") === true;
}

/** Why not, and what would change that. */
export function whyNot() {
  if (access.roles == null) return "The server has not said yet what you may do.";
  if (access.open) return "Pages may only look: the server asks for no token, and was not started with --ui-may-break.";
  return "Your token may look, not break: that needs the role admin.";
}
