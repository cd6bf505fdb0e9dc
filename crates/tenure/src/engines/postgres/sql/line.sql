-- The rule of ledger.rs on the rows of a name. A step reads the name's row into a tenure_v1.step, which the functions
-- below take and return, and writes it back once.
--
-- A set of functions is never changed once it was released: another rule gets a schema of another version beside this
-- one, so that programs of both versions work on the same tables.
CREATE SCHEMA tenure_v1;

CREATE TYPE tenure_v1.step AS (
  key bigint, number bigint, timeline text, capacity bigint, resized_until bigint, held bigint, waiting bigint,
  aside bigint, fixed bigint, soonest bigint, traced_until bigint, record_until bigint, alone tenure.claim,
  space text, name text, now bigint,
  -- How many claims this step may still end, admit or set aside.
  moves integer,
  -- The claim that asks, its process, and whether that process was found not to be there.
  asker uuid, asker_process bigint, asker_aside boolean,
  -- Whether this step asks for a place; the claim that was found to be there; whether the hold that ends was brief.
  asks boolean, there uuid, brief boolean
);

CREATE TYPE tenure_v1.answer AS (
  code text, fence bigint, remaining bigint, first_life boolean, ticket bigint, ahead bigint, floor bigint,
  -- Until the hold that ends first does so; NULL if nobody holds.
  next_end bigint,
  held_up boolean, capacity bigint, outcome bytea, ended_by text, why text, more boolean,
  -- The hold that ends first.
  h_fence bigint, h_weight bigint, h_held_for bigint, h_remaining bigint, h_owner text, h_reason text, h_meta text[],
  h_value text, h_trace text
);

-- A grant must survive a crash, whatever the session was set to.
CREATE FUNCTION tenure_v1.survive() RETURNS void LANGUAGE sql AS $$
  SELECT set_config('synchronous_commit', 'on', true)
$$;

-- The server's timeline, which changes when another server takes over.
CREATE FUNCTION tenure_v1.timeline() RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
$$;

-- The highest number of all names that were deleted. The steps scan no table as a whole: a plan that was made while it was
-- small is used for long. This one has one row and no index.
CREATE FUNCTION tenure_v1.floor() RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = on AS $$
BEGIN
  RETURN coalesce((SELECT f.number FROM tenure.floor f), 0);
END $$;

-- Locks the name's row, and makes it if it must be there. Returns a step without a key if there is no such name.
CREATE FUNCTION tenure_v1.open(p_space text, p_name text, p_make boolean) RETURNS tenure_v1.step
LANGUAGE plpgsql AS $$
DECLARE
  s tenure_v1.step;
  here text;
BEGIN
  IF current_setting('synchronous_commit') IN ('off', 'local') THEN PERFORM tenure_v1.survive(); END IF;
  LOOP
    SELECT n.key, n.number, n.timeline, n.capacity, n.resized_until, n.held, n.waiting, n.aside, n.fixed, n.soonest,
        n.traced_until, n.record_until, n.alone, p_space, p_name, 0, 512, NULL, 0, false, false, NULL, false
      INTO s FROM tenure.name n WHERE n.space = p_space AND n.name = p_name FOR NO KEY UPDATE;
    EXIT WHEN FOUND;
    IF NOT p_make THEN RETURN NULL; END IF;
    INSERT INTO tenure.name (space, name) VALUES (p_space, p_name) ON CONFLICT DO NOTHING;
  END LOOP;
  -- Only now: the row may have been waited for.
  s.now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  IF s.number = 0 THEN
    -- After the row was made: whoever deleted an older one has raised the floor by then.
    s.number := tenure_v1.floor();
  END IF;
  here := tenure_v1.timeline();
  IF s.timeline <> here THEN
    -- Another server has taken over, and may lack the last renewals. Every hold lasts its ttl from the first contact,
    -- as if that had been the last one.
    IF s.timeline <> '' THEN
      IF (s.alone).id IS NOT NULL THEN s.alone.until := greatest((s.alone).until, s.now + (s.alone).ttl); END IF;
      UPDATE tenure.claim c
        SET until = greatest(c.until, s.now + CASE c.state WHEN 2 THEN c.ttl ELSE 60000000 END)
        WHERE c.name = s.key;
    END IF;
    s.timeline := here;
  END IF;
  RETURN s;
END $$;

-- Writes the name's row back, if it has changed.
CREATE FUNCTION tenure_v1.save(s tenure_v1.step) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF s.asker_aside THEN
    -- It stood in line for this step only.
    UPDATE tenure.claim c SET state = 1 WHERE c.name = s.key AND c.id = s.asker AND c.state = 0;
    IF FOUND THEN s.aside := s.aside + 1; END IF;
  END IF;
  UPDATE tenure.name n SET number = s.number, timeline = s.timeline, capacity = s.capacity,
      resized_until = s.resized_until, held = s.held, waiting = s.waiting, aside = s.aside, fixed = s.fixed,
      soonest = s.soonest, traced_until = s.traced_until, record_until = s.record_until, alone = s.alone
    WHERE n.key = s.key AND (n.number, n.timeline, n.capacity, n.resized_until, n.held, n.waiting, n.aside, n.fixed,
      n.soonest, n.traced_until, n.record_until, n.alone) IS DISTINCT FROM (s.number, s.timeline, s.capacity,
      s.resized_until, s.held, s.waiting, s.aside, s.fixed, s.soonest, s.traced_until, s.record_until, s.alone);
END $$;

-- The next number: above all before it, and never behind the clock, so that a server that lost the last ones, or that was
-- restored from a copy, does not give them again.
CREATE FUNCTION tenure_v1.next_number(s tenure_v1.step) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT greatest(s.number + 1, s.now)
$$;

CREATE FUNCTION tenure_v1.find(s tenure_v1.step, p_id uuid) RETURNS tenure.claim LANGUAGE plpgsql AS $$
DECLARE
  e tenure.claim;
BEGIN
  IF (s.alone).id = p_id THEN RETURN s.alone; END IF;
  IF s.waiting > 0 OR s.held > 0 THEN
    SELECT * INTO e FROM tenure.claim c WHERE c.name = s.key AND c.id = p_id;
  END IF;
  RETURN e;
END $$;

-- Sets the places of a process aside, or brings them back. The claim that asks stays where it is for this step.
CREATE FUNCTION tenure_v1.reach(s tenure_v1.step, p_process bigint, p_there boolean) RETURNS tenure_v1.step
LANGUAGE plpgsql AS $$
DECLARE
  moved bigint;
BEGIN
  IF p_process = s.asker_process THEN s.asker_aside := NOT p_there; END IF;
  IF p_there AND s.aside > 0 THEN
    UPDATE tenure.claim c SET state = 0 WHERE c.name = s.key AND c.state = 1 AND c.process = p_process;
    GET DIAGNOSTICS moved = ROW_COUNT;
    s.aside := s.aside - moved;
  ELSIF NOT p_there AND s.waiting > s.aside THEN
    UPDATE tenure.claim c SET state = 1
      WHERE c.name = s.key AND c.state = 0 AND c.process = p_process AND c.id IS DISTINCT FROM s.asker;
    GET DIAGNOSTICS moved = ROW_COUNT;
    s.aside := s.aside + moved;
  END IF;
  RETURN s;
END $$;

-- Removes a claim. A hold must have been freed before.
CREATE FUNCTION tenure_v1.drop(s tenure_v1.step, e tenure.claim) RETURNS tenure_v1.step LANGUAGE plpgsql AS $$
BEGIN
  IF e.fixed THEN s.fixed := s.fixed - 1; END IF;
  IF e.state = 2 THEN
    s.held := s.held - e.weight;
  ELSE
    s.waiting := s.waiting - 1;
    IF e.state = 1 THEN s.aside := s.aside - 1; END IF;
  END IF;
  IF (s.alone).id = e.id THEN
    s.alone := NULL;
  ELSE
    DELETE FROM tenure.claim c WHERE c.name = s.key AND c.id = e.id;
  END IF;
  RETURN s;
END $$;

-- Removes the row that transactions lock to keep a hold from ending. Returns false if one of them has: then the hold
-- goes on until that transaction has ended. Nobody waits for it here.
CREATE FUNCTION tenure_v1.free(p_key bigint, p_fence bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM tenure.hold h WHERE h.ctid = (
    SELECT g.ctid FROM tenure.hold g WHERE g.name = p_key AND g.fence = p_fence FOR UPDATE SKIP LOCKED);
  IF FOUND THEN RETURN true; END IF;
  -- No other transaction may keep it.
  UPDATE tenure.hold h SET ended = true WHERE h.ctid = (
    SELECT g.ctid FROM tenure.hold g WHERE g.name = p_key AND g.fence = p_fence AND NOT g.ended
      FOR NO KEY UPDATE SKIP LOCKED);
  RETURN NOT FOUND AND NOT EXISTS (SELECT FROM tenure.hold h WHERE h.name = p_key AND h.fence = p_fence);
END $$;

-- Stores a hold that has changed.
CREATE FUNCTION tenure_v1.put(s tenure_v1.step, e tenure.claim) RETURNS tenure_v1.step LANGUAGE plpgsql AS $$
BEGIN
  IF (s.alone).id = e.id THEN
    s.alone := e;
  ELSE
    UPDATE tenure.claim c SET until = e.until, first_life = e.first_life, process = e.process, listens = e.listens
      WHERE c.name = s.key AND c.id = e.id;
    s.soonest := least(s.soonest, e.until);
  END IF;
  RETURN s;
END $$;

-- Ends a hold: now, or as soon as the transaction that guards it has ended.
CREATE FUNCTION tenure_v1.end_hold(s tenure_v1.step, e tenure.claim) RETURNS tenure_v1.step LANGUAGE plpgsql AS $$
BEGIN
  IF tenure_v1.free(s.key, e.fence) THEN RETURN tenure_v1.drop(s, e); END IF;
  e.until := least(e.until, s.now);
  RETURN tenure_v1.put(s, e);
END $$;

-- Ends what has run out, except for holds that a transaction guards.
CREATE FUNCTION tenure_v1.expire(s tenure_v1.step) RETURNS tenure_v1.step LANGUAGE plpgsql AS $$
DECLARE
  e tenure.claim;
BEGIN
  e := s.alone;
  IF e.until <= s.now AND tenure_v1.free(s.key, e.fence) THEN
    s := tenure_v1.drop(s, e);
    s.moves := s.moves - 1;
    IF e.process <> 0 AND NOT e.on_behalf THEN s := tenure_v1.reach(s, e.process, false); END IF;
  END IF;
  IF s.soonest > s.now THEN RETURN s; END IF;
  -- Holds before places, the earliest first: the order in which separate steps would have found them.
  FOR e IN SELECT c.* FROM tenure.claim c WHERE c.name = s.key AND c.until <= s.now
      ORDER BY c.state <> 2, c.until, c.ticket LIMIT s.moves LOOP
    IF e.state < 2 THEN
      -- An earlier one of these may have set it aside.
      SELECT c.state INTO e.state FROM tenure.claim c WHERE c.name = s.key AND c.id = e.id;
    ELSIF NOT tenure_v1.free(s.key, e.fence) THEN
      CONTINUE;
    END IF;
    s.moves := s.moves - 1;
    s := tenure_v1.drop(s, e);
    -- A process that let a hold run out is probably gone: its other places must not cost the line a first life each.
    IF e.state = 2 AND e.process <> 0 AND NOT e.on_behalf THEN s := tenure_v1.reach(s, e.process, false); END IF;
  END LOOP;
  SELECT coalesce(min(c.until), 9223372036854775807) INTO s.soonest FROM tenure.claim c WHERE c.name = s.key;
  RETURN s;
END $$;

-- Whether a process is there. The session that listens for it has an advisory lock with its number: whoever gets that
-- lock, even shared, knows that nobody listens. A session gets its own locks, so it also has the number in a setting.
CREATE FUNCTION tenure_v1.is_there(p_process bigint, p_listens boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN NOT p_listens OR current_setting('tenure.process', true) IS NOT DISTINCT FROM p_process::text
    OR NOT pg_try_advisory_xact_lock_shared(p_process);
END $$;

-- Tells a claim something, and returns whether its process is there.
CREATE FUNCTION tenure_v1.say(e tenure.claim, p_text text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF NOT tenure_v1.is_there(e.process, e.listens) THEN RETURN false; END IF;
  IF e.listens AND p_text <> '' THEN PERFORM pg_notify('tenure_' || to_hex(e.process), p_text); END IF;
  RETURN true;
END $$;

CREATE FUNCTION tenure_v1.record(s tenure_v1.step) RETURNS tenure.record LANGUAGE plpgsql AS $$
DECLARE
  r tenure.record;
BEGIN
  IF s.record_until > 0 THEN
    SELECT * INTO r FROM tenure.record x WHERE x.name = s.key AND (s.held > 0 OR x.until > s.now);
  END IF;
  RETURN r;
END $$;

CREATE FUNCTION tenure_v1.set_record(s tenure_v1.step, r tenure.record) RETURNS tenure_v1.step LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tenure.record VALUES (s.key, r.fence, r.keep, r.until, r.content, r.doubt, r.outcome)
    ON CONFLICT (name) DO UPDATE SET fence = r.fence, keep = r.keep, until = r.until, content = r.content,
      doubt = r.doubt, outcome = r.outcome;
  s.record_until := r.until;
  RETURN s;
END $$;

CREATE FUNCTION tenure_v1.drop_record(s tenure_v1.step) RETURNS tenure_v1.step LANGUAGE plpgsql AS $$
BEGIN
  IF s.record_until > 0 THEN DELETE FROM tenure.record x WHERE x.name = s.key; END IF;
  s.record_until := 0;
  RETURN s;
END $$;

CREATE FUNCTION tenure_v1.agree(a uuid, b uuid) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT a = b OR a = '00000000-0000-0000-0000-000000000000' OR b = '00000000-0000-0000-0000-000000000000'
$$;

-- Records that a once has begun.
CREATE FUNCTION tenure_v1.begun(s tenure_v1.step, e tenure.claim) RETURNS tenure_v1.step LANGUAGE plpgsql AS $$
DECLARE
  r tenure.record;
BEGIN
  r := tenure_v1.record(s);
  r.doubt := r.fence IS NOT NULL AND r.outcome IS NULL;
  r.fence := e.fence;
  r.keep := e.keep;
  r.until := s.now + e.keep;
  r.content := e.content;
  r.outcome := NULL;
  RETURN tenure_v1.set_record(s, r);
END $$;

-- Turns a place, or a claim that is not stored yet, into a hold. A once has begun if its owner is there to take the
-- grant. If the grant is only pushed, it begins when the turn is taken, and an expired record must not count again while
-- it is held.
CREATE FUNCTION tenure_v1.grant(s tenure_v1.step, e tenure.claim, p_life bigint, p_in_hand boolean, p_new boolean)
RETURNS tenure_v1.step LANGUAGE plpgsql AS $$
DECLARE
  r tenure.record;
BEGIN
  s.number := tenure_v1.next_number(s);
  IF NOT p_new THEN
    s.waiting := s.waiting - 1;
    IF e.state = 1 THEN s.aside := s.aside - 1; END IF;
  ELSIF e.fixed THEN
    s.fixed := s.fixed + 1;
  END IF;
  e.fence := s.number;
  e.since := s.now;
  e.until := s.now + p_life;
  e.first_life := p_life < e.ttl;
  e.state := 2;
  IF e.keep >= 0 AND p_in_hand THEN
    s := tenure_v1.begun(s, e);
  ELSIF e.keep >= 0 THEN
    r := tenure_v1.record(s);
    IF r.fence IS NULL THEN s := tenure_v1.drop_record(s); END IF;
  END IF;
  s.held := s.held + e.weight;
  IF (s.alone).id IS NULL AND e.weight = s.capacity THEN
    s.alone := e;
    IF NOT p_new THEN DELETE FROM tenure.claim c WHERE c.name = s.key AND c.id = e.id; END IF;
  ELSE
    s.soonest := least(s.soonest, e.until);
    IF p_new THEN
      INSERT INTO tenure.claim VALUES (e.*);
    ELSE
      UPDATE tenure.claim c SET fence = e.fence, since = e.since, until = e.until, first_life = e.first_life, state = 2
        WHERE c.name = s.key AND c.id = e.id;
    END IF;
  END IF;
  INSERT INTO tenure.hold (name, fence) VALUES (s.key, e.fence);
  RETURN s;
END $$;

-- The hold that ends first. One that is overdue, because a transaction guards it, may end at any time: look soon.
CREATE FUNCTION tenure_v1.first_to_end(s tenure_v1.step) RETURNS tenure.claim LANGUAGE plpgsql AS $$
DECLARE
  e tenure.claim;
BEGIN
  IF s.held > coalesce((s.alone).weight, 0) THEN
    SELECT * INTO e FROM tenure.claim c WHERE c.name = s.key AND c.state = 2 ORDER BY c.until LIMIT 1;
  END IF;
  IF (s.alone).id IS NOT NULL AND (e.id IS NULL OR (s.alone).until <= e.until) THEN e := s.alone; END IF;
  RETURN e;
END $$;

CREATE FUNCTION tenure_v1.until_end(s tenure_v1.step, e tenure.claim) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN e.until <= s.now THEN 100000 ELSE e.until - s.now END
$$;

-- Text of a push to the claim at a place.
CREATE FUNCTION tenure_v1.to_place(s tenure_v1.step, p_kind text, e tenure.claim, p_rest text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT p_kind || ' ' || s.space || ' ' || e.ticket || ' ' || p_rest || s.name
$$;

-- Text of a push to a claim that has ended. From here on its id is no longer a secret.
CREATE FUNCTION tenure_v1.to_ended(s tenure_v1.step, p_kind text, e tenure.claim, p_rest text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT p_kind || ' ' || s.space || ' ' || e.id || ' ' || p_rest || s.name
$$;

-- Ends a waiting claim that can never fit.
CREATE FUNCTION tenure_v1.refuse(s tenure_v1.step, e tenure.claim) RETURNS tenure_v1.step LANGUAGE plpgsql AS $$
BEGIN
  s.moves := s.moves - 1;
  s := tenure_v1.drop(s, e);
  PERFORM tenure_v1.say(e, tenure_v1.to_ended(s, 'C', e, s.capacity || ' '));
  RETURN s;
END $$;

-- Answers a waiting claim of a once that no longer needs a turn: C its content is another, S it is settled, U it was
-- never settled.
CREATE FUNCTION tenure_v1.dismissal(s tenure_v1.step, e tenure.claim, r tenure.record) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN r.fence IS NULL THEN NULL
    WHEN s.held = 0 AND NOT tenure_v1.agree(e.content, r.content) THEN 'O'
    WHEN r.outcome IS NOT NULL THEN 'S'
    WHEN s.held = 0 AND NOT e.rerun THEN 'U'
  END
$$;

-- A turn was pushed to a process. If it is not taken, someone must look when it runs out: the next in line, and others in
-- case the next does not react either. A process looks for all of its claims, so it is told once. These others are told
-- at most once a second.
CREATE FUNCTION tenure_v1.tell_when_to_look(s tenure_v1.step, p_process bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  e tenure.claim;
  told bigint[] := ARRAY[p_process];
  place integer := 0;
  first tenure.claim := tenure_v1.first_to_end(s);
  at bigint;
  last integer;
BEGIN
  IF first.id IS NULL OR s.waiting = s.aside THEN RETURN; END IF;
  at := tenure_v1.until_end(s, first);
  last := least(s.waiting - s.aside, 64) - 1;
  FOR e IN SELECT c.* FROM tenure.claim c WHERE c.name = s.key AND c.state = 0 ORDER BY c.ticket, c.id
      LIMIT CASE WHEN s.brief OR s.waiting < 2 THEN 1 ELSE 64 END LOOP
    IF place = 0 OR NOT (e.process <> 0 AND e.process = ANY (told)) AND (place < 8 OR place = last) THEN
      IF place > 0 THEN at := at + 25000; END IF;
      told := told || e.process;
      PERFORM tenure_v1.say(e, tenure_v1.to_place(s, 'L', e, at || ' '));
    END IF;
    place := place + 1;
  END LOOP;
END $$;

-- The walk: admits waiting claims by ticket while they fit. The claim that asks learns of its turn from the answer.
CREATE FUNCTION tenure_v1.admit(s tenure_v1.step, p_in_hand boolean) RETURNS tenure_v1.step LANGUAGE plpgsql AS $$
DECLARE
  e tenure.claim;
  r tenure.record;
  told text;
  life bigint;
  pushed bigint;
BEGIN
  WHILE s.moves > 0 AND s.waiting > s.aside AND s.number < 9007199254740991 LOOP
    SELECT * INTO e FROM tenure.claim c WHERE c.name = s.key AND c.state = 0 ORDER BY c.ticket, c.id LIMIT 1;
    EXIT WHEN NOT FOUND;
    IF e.keep >= 0 THEN
      r := tenure_v1.record(s);
      told := tenure_v1.dismissal(s, e, r);
      IF told IS NOT NULL THEN
        s.moves := s.moves - 1;
        s := tenure_v1.drop(s, e);
        IF told = 'S' AND length(r.outcome) < 3000 THEN
          PERFORM tenure_v1.say(e, tenure_v1.to_ended(s, 'S', e, encode(r.outcome, 'hex') || ' '));
        ELSE
          -- The claim learns the rest from the answer to its next question, which only it receives.
          PERFORM tenure_v1.say(e, tenure_v1.to_place(s, 'A', e, ''));
        END IF;
        CONTINUE;
      END IF;
    END IF;
    IF e.weight > s.capacity THEN
      -- There were more of these than one step could end when the capacity was changed.
      s := tenure_v1.refuse(s, e);
      CONTINUE;
    END IF;
    IF e.weight > s.capacity - s.held THEN
      -- Nobody pushes a turn to a claim that holds others up, so nobody else would find out that it is not there.
      IF s.held < s.capacity AND e.id IS DISTINCT FROM s.asker AND s.asks AND s.there IS DISTINCT FROM e.id THEN
        IF NOT tenure_v1.say(e, '') THEN
          s.moves := s.moves - 1;
          s := tenure_v1.reach(s, e.process, false);
          CONTINUE;
        END IF;
        s.there := e.id;
      END IF;
      EXIT;
    END IF;
    s.moves := s.moves - 1;
    IF e.id = s.asker THEN
      s := tenure_v1.grant(s, e, CASE WHEN p_in_hand THEN e.ttl ELSE least(e.ttl, 2000000) END, p_in_hand, false);
    ELSE
      life := least(e.ttl, 2000000);
      IF tenure_v1.say(e, tenure_v1.to_place(s, 'G', e, tenure_v1.next_number(s) || ' ' || life || ' '
          || (life < e.ttl)::integer || ' ')) THEN
        s := tenure_v1.grant(s, e, life, false, false);
        pushed := e.process;
      ELSE
        s.number := tenure_v1.next_number(s);
        s := tenure_v1.reach(s, e.process, false);
      END IF;
    END IF;
  END LOOP;
  IF pushed IS NOT NULL THEN PERFORM tenure_v1.tell_when_to_look(s, pushed); END IF;
  RETURN s;
END $$;

-- A hold that is to end is guarded by a transaction: the first in line that is there looks until that is over.
CREATE FUNCTION tenure_v1.look_soon(s tenure_v1.step) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  e tenure.claim;
BEGIN
  FOR e IN SELECT * FROM tenure.claim c WHERE c.name = s.key AND c.state = 0 ORDER BY c.ticket, c.id LIMIT 64 LOOP
    EXIT WHEN tenure_v1.say(e, tenure_v1.to_place(s, 'L', e, '100000 '));
  END LOOP;
END $$;

-- The owner of a hold takes it, so a once has begun, unless it was settled in the meantime: then the hold ends, and this
-- returns what its owner is told.
CREATE FUNCTION tenure_v1.taken(s tenure_v1.step, e tenure.claim, r tenure.record) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN e.keep < 0 OR r.fence IS NULL OR r.fence = e.fence THEN NULL
    WHEN NOT tenure_v1.agree(e.content, r.content) THEN 'O'
    WHEN r.outcome IS NOT NULL THEN 'S'
  END
$$;

CREATE FUNCTION tenure_v1.trace(s tenure_v1.step, p_id uuid, p_kind text, p_until bigint, p_by text, p_reason text)
RETURNS tenure_v1.step LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM tenure.trace t WHERE t.name = s.key AND t.until <= s.now;
  INSERT INTO tenure.trace VALUES (s.key, p_id, p_kind, p_until, p_by, p_reason)
    ON CONFLICT (name, id) DO UPDATE SET kind = p_kind, until = p_until, ended_by = p_by, reason = p_reason;
  -- Always another value: above READ COMMITTED a step must not miss a trace because the name's row has not changed.
  s.traced_until := greatest(s.traced_until + 1, p_until);
  RETURN s;
END $$;

CREATE FUNCTION tenure_v1.traced(s tenure_v1.step, p_id uuid) RETURNS tenure.trace LANGUAGE plpgsql AS $$
DECLARE
  t tenure.trace;
BEGIN
  IF s.traced_until > s.now THEN
    SELECT * INTO t FROM tenure.trace x WHERE x.name = s.key AND x.id = p_id AND x.until > s.now;
  END IF;
  RETURN t;
END $$;

CREATE FUNCTION tenure_v1.gone(s tenure_v1.step, p_id uuid) RETURNS tenure_v1.answer LANGUAGE plpgsql AS $$
DECLARE
  a tenure_v1.answer;
  t tenure.trace := tenure_v1.traced(s, p_id);
BEGIN
  a.code := 'X';
  IF t.kind = 'b' THEN
    a.ended_by := t.ended_by;
    a.why := t.reason;
  END IF;
  RETURN a;
END $$;

-- Adds the hold that ends first.
CREATE FUNCTION tenure_v1.with_holder(a tenure_v1.answer, s tenure_v1.step) RETURNS tenure_v1.answer
LANGUAGE plpgsql AS $$
DECLARE
  h tenure.claim := tenure_v1.first_to_end(s);
BEGIN
  IF h.id IS NULL THEN RETURN a; END IF;
  a.next_end := tenure_v1.until_end(s, h);
  a.h_fence := h.fence;
  a.h_weight := h.weight;
  a.h_held_for := greatest(s.now - h.since, 0);
  a.h_remaining := greatest(h.until - s.now, 0);
  a.h_owner := h.owner;
  a.h_reason := h.reason;
  a.h_meta := h.meta;
  a.h_value := h.value;
  a.h_trace := h.trace;
  RETURN a;
END $$;

CREATE FUNCTION tenure_v1.granted(s tenure_v1.step, e tenure.claim) RETURNS tenure_v1.answer LANGUAGE plpgsql AS $$
DECLARE
  a tenure_v1.answer;
BEGIN
  a.code := 'G';
  a.fence := e.fence;
  a.remaining := greatest(e.until - s.now, 0);
  a.first_life := e.first_life;
  RETURN a;
END $$;
