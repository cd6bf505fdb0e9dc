-- The highest fence that was seen of each name.
CREATE TABLE IF NOT EXISTS tenure_fences (
    name TEXT NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL
)
