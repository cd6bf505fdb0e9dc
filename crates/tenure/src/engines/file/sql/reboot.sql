-- Everyone who had a claim is gone, and no moment of the last boot means anything any more.
DELETE FROM claim;
DELETE FROM trace;
DELETE FROM process;
DELETE FROM name WHERE resized_until = 0 AND once_fence IS NULL;
