INSERT INTO tenure_fences (name, fence) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET fence = CASE
    WHEN excluded.fence > tenure_fences.fence THEN excluded.fence
    ELSE tenure_fences.fence
END
RETURNING fence
