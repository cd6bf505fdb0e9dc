-- Exact fencing, for the transactions of a holder, in any language: SELECT tenure.guard('name', fence). Until the
-- transaction ends, the name cannot be granted to anyone else. Fails with TE001 if the hold has ended, and in a READ ONLY
-- transaction. Above READ COMMITTED it fails with 40001 if the hold ended after the transaction began, and with TE002 if
-- it was granted after that.
CREATE OR REPLACE FUNCTION tenure.guard(p_name text, p_fence bigint, p_space text DEFAULT 'l') RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  is_snapshot boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
  k bigint;
  highest bigint;
  has_ended boolean;
  ends bigint;
  mark bigint;
BEGIN
  SELECT n.key, n.number INTO k, highest FROM tenure.name n WHERE n.space = p_space AND n.name = p_name;
  -- Renewals do not update this row, so they are not in the way. Whoever ends the hold deletes it; if it is locked, that one
  -- does not wait for it, but marks it.
  SELECT h.ended INTO has_ended FROM tenure.hold h WHERE h.name = k AND h.fence = p_fence FOR KEY SHARE;
  IF has_ended IS NULL AND is_snapshot THEN
    -- A grant that this transaction can see has raised the number of its name.
    IF highest IS NULL THEN SELECT f.number INTO highest FROM tenure.floor f; END IF;
    IF p_fence > highest THEN
      RAISE EXCEPTION 'this transaction is older than the hold of "%" with fence %', p_name, p_fence
        USING ERRCODE = 'TE002', DETAIL = p_name, HINT = 'begin the transaction after the name was acquired';
    END IF;
  END IF;
  IF has_ended IS NOT FALSE THEN
    RAISE EXCEPTION 'the hold of "%" with fence % has ended', p_name, p_fence USING ERRCODE = 'TE001', DETAIL = p_name;
  END IF;
  IF is_snapshot THEN
    -- The mark may be newer than the snapshot. A stronger lock finds that out and fails with 40001; it would keep others
    -- from marking the row, so it is given back at once. Renewals since the snapshot cannot be seen, so that a hold is
    -- overdue here when somebody has asked for it.
    BEGIN
      PERFORM FROM tenure.hold h WHERE h.name = k AND h.fence = p_fence FOR SHARE;
      RAISE EXCEPTION USING ERRCODE = 'TE000';
    EXCEPTION WHEN SQLSTATE 'TE000' THEN
      NULL;
    END;
  ELSE
    SELECT CASE WHEN (n.alone).fence = p_fence THEN (n.alone).until ELSE (
        SELECT c.until FROM tenure.claim c WHERE c.name = k AND c.state = 2 AND c.fence = p_fence) END
      INTO ends FROM tenure.name n WHERE n.key = k;
    IF ends IS NULL OR ends <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint THEN
      -- Others that wait for it must not be kept out by one transaction after the other.
      RAISE EXCEPTION 'the hold of "%" with fence % is overdue', p_name, p_fence
        USING ERRCODE = 'TE001', DETAIL = p_name;
    END IF;
  END IF;
  -- It protects nothing: pg_locks shows by it which session guards which hold. Nobody waits for it.
  mark := hashint8extended(p_fence, k);
  PERFORM pg_try_advisory_xact_lock_shared((mark >> 32)::integer, ((mark << 32) >> 32)::integer);
END $$;
