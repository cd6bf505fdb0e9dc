-- The steps: what programs call, one function and one commit each.

-- What a claim asks, or without a capacity, what a place does. A step has one argument and one answer, because the server parses its call every time.
CREATE TYPE tenure_v1.asking AS (
  space text, name text, id uuid, weight bigint, capacity bigint, fixed boolean, ttl bigint, may_wait boolean,
  max_waiters bigint, ticket bigint, seen bigint, keep bigint, rerun boolean, content uuid, process bigint,
  listens boolean, in_hand boolean, owner text, reason text, meta text[], value text, trace text, on_behalf boolean
);

-- What a claim that leaves says.
CREATE TYPE tenure_v1.leaving AS (
  space text, name text, id uuid, in_doubt boolean, of_fence bigint, unbegun boolean, settles bigint, outcome bytea,
  only_waiting boolean, process bigint
);

-- A claim asks, or asks again.
CREATE FUNCTION tenure_v1.claim(p tenure_v1.asking)
RETURNS tenure_v1.answer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  s tenure_v1.step;
  a tenure_v1.answer;
  e tenure.claim;
  r tenure.record;
  t tenure.trace;
  told text;
  used boolean;
  resized boolean;
  comes_next boolean := false;
  is_new boolean := false;
  here text;
  at bigint;
  life bigint;
BEGIN
  IF greatest(p.seen, coalesce(p.ticket, 0)) > 9007199254740989 THEN
    a.code := 'N';
    RETURN a;
  END IF;
  IF current_setting('synchronous_commit') IN ('off', 'local') THEN PERFORM tenure_v1.survive(); END IF;
  -- The whole capacity of a name that nobody uses: what follows, in one statement.
  IF p.weight = p.capacity AND p.keep < 0 AND p.ticket IS NULL THEN
    here := tenure_v1.timeline();
    -- The row may be waited for. Then this is what a step before that would have done.
    at := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    life := CASE WHEN p.in_hand THEN p.ttl ELSE least(p.ttl, 2000000) END;
    WITH taken AS (
      UPDATE tenure.name n SET number = greatest(n.number + 1, p.seen + 1, at) + 1, capacity = p.capacity, resized_until = 0,
          held = p.weight, fixed = p.fixed::integer, alone = ROW (n.key, p.id, greatest(n.number + 1, p.seen + 1, at), 2,
          at + life, p.process, p.listens, p.on_behalf, p.weight, p.fixed, p.ttl, at,
          greatest(n.number + 1, p.seen + 1, at) + 1, life < p.ttl, p.keep, p.rerun, p.content, p.owner, p.reason, p.meta,
          p.value, p.trace)::tenure.claim
        WHERE n.space = p.space AND n.name = p.name AND n.held = 0 AND n.waiting = 0 AND n.traced_until <= at
          AND n.resized_until <= at AND n.timeline = here AND n.number BETWEEN 1 AND 9007199254740988
        RETURNING n.key, n.number
    )
    INSERT INTO tenure.hold AS h (name, fence) SELECT taken.key, taken.number FROM taken RETURNING h.fence INTO a.fence;
    IF FOUND THEN
      a.code := 'G';
      a.remaining := life;
      a.first_life := life < p.ttl;
      a.more := false;
      RETURN a;
    END IF;
    -- Behind a hold of the whole capacity, as the only one that waits.
    IF p.may_wait AND p.max_waiters > 0 THEN
      WITH line AS (
        UPDATE tenure.name n SET number = greatest(n.number + 1, p.seen + 1, at), waiting = 1,
            fixed = n.fixed + p.fixed::integer, soonest = least(n.soonest, at + 60000000)
          WHERE n.space = p.space AND n.name = p.name AND (n.alone).id <> p.id AND (n.alone).weight = p.capacity
            AND n.capacity = p.capacity AND n.held = p.capacity AND n.waiting = 0 AND n.resized_until = 0
            AND least((n.alone).until, n.soonest) > at AND greatest(n.traced_until, n.record_until) <= at
            AND n.timeline = here AND n.number BETWEEN 1 AND 9007199254740988
          RETURNING n.key, n.number, n.alone
      ), place AS (
        INSERT INTO tenure.claim SELECT line.key, p.id, line.number, 0, at + 60000000, p.process, p.listens, p.on_behalf,
            p.weight, p.fixed, p.ttl, at, 0, false, p.keep, p.rerun, p.content, p.owner, p.reason, p.meta, p.value, p.trace
          FROM line
      )
      SELECT 'W', line.number, line.number, 0, false, (line.alone).until - at, (line.alone).until - at, (line.alone).fence,
          (line.alone).weight, greatest(at - (line.alone).since, 0), (line.alone).owner, (line.alone).reason,
          (line.alone).meta, (line.alone).value, (line.alone).trace
        INTO a.code, a.ticket, a.floor, a.ahead, a.held_up, a.next_end, a.h_remaining, a.h_fence, a.h_weight, a.h_held_for,
          a.h_owner, a.h_reason, a.h_meta, a.h_value, a.h_trace FROM line;
      IF FOUND THEN
        a.more := false;
        RETURN a;
      END IF;
    END IF;
  END IF;
  s := tenure_v1.open(p.space, p.name, true);
  s.asker := p.id;
  s.asker_process := p.process;
  t := tenure_v1.traced(s, p.id);
  IF t.kind = 't' THEN
    a.code := 'L';
    RETURN a;
  END IF;
  -- Numbers also continue above a ticket that returns: it must not be given a second time.
  s.number := greatest(s.number, p.seen, coalesce(p.ticket, 0));
  IF (s.alone).id IS NOT NULL OR s.held > 0 OR s.waiting > 0 THEN s := tenure_v1.expire(s); END IF;
  -- Any claim counts as contact, even if it is refused. The places it brings back come before the claim itself.
  IF p.process <> 0 THEN s := tenure_v1.reach(s, p.process, true); END IF;
  e := tenure_v1.find(s, p.id);
  IF e.on_behalf AND e.process <> p.process THEN
    e.process := p.process;
    e.listens := p.listens;
    IF e.state = 2 THEN s := tenure_v1.put(s, e); END IF;
  END IF;
  IF e.state = 2 THEN
    IF p.in_hand AND e.keep >= 0 THEN
      r := tenure_v1.record(s);
      told := tenure_v1.taken(s, e, r);
      IF told IS NOT NULL THEN
        s := tenure_v1.end_hold(s, e);
      ELSIF r.fence IS DISTINCT FROM e.fence THEN
        s := tenure_v1.begun(s, e);
      END IF;
    END IF;
    s := tenure_v1.admit(s, false);
    a := tenure_v1.granted(s, e);
    IF told IS NOT NULL THEN
      a.code := told;
      a.outcome := r.outcome;
    END IF;
    a.more := s.moves = 0;
    PERFORM tenure_v1.save(s);
    RETURN a;
  END IF;
  IF s.number > 9007199254740989 THEN
    a.code := 'N';
    PERFORM tenure_v1.save(s);
    RETURN a;
  END IF;
  s.asks := true;
  IF p.keep >= 0 THEN
    r := tenure_v1.record(s);
    told := CASE
      WHEN r.fence IS NULL THEN NULL
      WHEN NOT tenure_v1.agree(p.content, r.content) THEN 'O'
      WHEN r.outcome IS NOT NULL THEN 'S'
      WHEN NOT p.rerun AND s.held = 0 THEN 'U'
    END;
    IF told IS NOT NULL THEN
      IF e.id IS NOT NULL THEN s := tenure_v1.drop(s, e); END IF;
      s := tenure_v1.admit(s, false);
      a.code := told;
      a.outcome := r.outcome;
      a.more := s.moves = 0;
      PERFORM tenure_v1.save(s);
      RETURN a;
    END IF;
  END IF;
  IF e.id IS NOT NULL THEN
    UPDATE tenure.claim c SET until = s.now + 60000000, state = 0, process = e.process, listens = p.listens
      WHERE c.name = s.key AND c.id = p.id;
    IF e.state = 1 THEN s.aside := s.aside - 1; END IF;
    s.soonest := least(s.soonest, s.now + 60000000);
  ELSIF p.capacity IS NULL THEN
    -- A place was asked for that has ended.
    a.code := 'Y';
    PERFORM tenure_v1.save(s);
    RETURN a;
  ELSE
    -- A newcomer stands last: everyone who can be served before it is served first. A claim that returns by ticket may
    -- stand before them.
    IF p.ticket IS NULL AND s.waiting > 0 THEN s := tenure_v1.admit(s, false); END IF;
    used := s.held > 0 OR s.waiting > 0;
    -- While the name is used, a set capacity applies for longer, so nobody is refused when the day is over.
    resized := s.resized_until > s.now OR used AND s.resized_until > 0;
    IF NOT resized AND NOT used THEN
      s.capacity := p.capacity;
      s.resized_until := 0;
    END IF;
    comes_next := p.weight <= s.capacity - s.held AND s.waiting = s.aside;
    a.code := CASE
      WHEN s.capacity <> p.capacity AND NOT (resized AND NOT p.fixed) OR p.weight > s.capacity THEN 'C'
      WHEN NOT comes_next AND NOT p.may_wait THEN 'B'
      -- Returning by ticket is not joining: that place was given before the line filled up.
      WHEN NOT comes_next AND p.ticket IS NULL AND s.waiting >= p.max_waiters THEN 'F'
    END;
    IF a.code IS NOT NULL THEN
      a.capacity := s.capacity;
      -- Even if it is refused it was contact, and any contact moves the line.
      IF p.ticket IS NOT NULL THEN s := tenure_v1.admit(s, false); END IF;
      IF a.code = 'B' THEN a := tenure_v1.with_holder(a, s); END IF;
      a.more := s.moves = 0;
      PERFORM tenure_v1.save(s);
      RETURN a;
    END IF;
    is_new := p.ticket IS NULL;
    IF is_new THEN s.number := tenure_v1.next_number(s); END IF;
    e := ROW (s.key, p.id, coalesce(p.ticket, s.number), 0, s.now + 60000000, p.process, p.listens, p.on_behalf, p.weight,
      p.fixed, p.ttl, s.now, 0, false, p.keep, p.rerun, p.content, p.owner, p.reason, p.meta, p.value, p.trace)::tenure.claim;
    IF comes_next THEN
      s := tenure_v1.grant(s, e, CASE WHEN p.in_hand THEN p.ttl ELSE least(p.ttl, 2000000) END, p.in_hand, true);
      e := tenure_v1.find(s, p.id);
      a := tenure_v1.granted(s, e);
      a.more := s.moves = 0;
      PERFORM tenure_v1.save(s);
      RETURN a;
    END IF;
    INSERT INTO tenure.claim VALUES (e.*);
    s.waiting := s.waiting + 1;
    IF p.fixed THEN s.fixed := s.fixed + 1; END IF;
    s.soonest := least(s.soonest, e.until);
  END IF;
  s := tenure_v1.admit(s, p.in_hand);
  e := tenure_v1.find(s, p.id);
  IF e.id IS NULL THEN
    a := tenure_v1.gone(s, p.id);
  ELSIF e.state = 2 THEN
    a := tenure_v1.granted(s, e);
  ELSE
    a.code := 'W';
    a.ticket := e.ticket;
    a.floor := s.number;
    IF is_new THEN
      a.ahead := s.waiting - s.aside - 1;
    ELSE
      SELECT count(*) INTO a.ahead FROM tenure.claim c WHERE c.name = s.key AND c.state = 0 AND c.ticket < e.ticket;
    END IF;
    -- Enough units for it are free, but a claim before it needs more and holds it up.
    a.held_up := e.weight <= s.capacity - s.held AND a.ahead > 0;
    a := tenure_v1.with_holder(a, s);
  END IF;
  a.more := s.moves = 0;
  PERFORM tenure_v1.save(s);
  RETURN a;
END $$;

-- Extends a hold. A ttl of zero only asks whether it is held.
CREATE FUNCTION tenure_v1.renew_one(p_space text, p_name text, p_id uuid, p_fence bigint, p_ttl bigint)
RETURNS tenure_v1.answer LANGUAGE plpgsql AS $$
DECLARE
  s tenure_v1.step;
  a tenure_v1.answer;
  e tenure.claim;
  r tenure.record;
  here text := tenure_v1.timeline();
  at bigint;
  ends bigint;
BEGIN
  IF current_setting('synchronous_commit') IN ('off', 'local') THEN PERFORM tenure_v1.survive(); END IF;
  at := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  -- A hold that takes the whole capacity, and nothing else to do: what follows, in one statement.
  UPDATE tenure.name n SET alone.until = greatest((n.alone).until, at + p_ttl), alone.first_life = false
    WHERE n.space = p_space AND n.name = p_name AND (n.alone).id = p_id AND (n.alone).fence = p_fence AND (n.alone).keep < 0
      AND least((n.alone).until, n.soonest) > at AND n.held >= n.capacity AND n.aside = 0 AND n.resized_until = 0
      AND n.record_until = 0 AND n.timeline = here AND p_ttl > 0
    RETURNING (n.alone).until INTO ends;
  IF FOUND THEN
    a.code := 'G';
    a.fence := p_fence;
    a.remaining := ends - at;
    a.first_life := false;
    a.more := false;
    RETURN a;
  END IF;
  s := tenure_v1.open(p_space, p_name, false);
  IF s.key IS NULL THEN
    a.code := 'X';
    RETURN a;
  END IF;
  s := tenure_v1.expire(s);
  e := tenure_v1.find(s, p_id);
  -- One that is overdue and only there because a transaction guards it is not renewed.
  IF e.state = 2 AND e.fence = p_fence AND e.until > s.now THEN
    IF p_ttl > 0 AND e.keep >= 0 THEN
      r := tenure_v1.record(s);
      IF tenure_v1.taken(s, e, r) IS NOT NULL THEN
        -- The claim itself must ask for the outcome of a once.
        s := tenure_v1.end_hold(s, e);
        a.code := 'X';
      ELSIF r.fence IS DISTINCT FROM e.fence THEN
        s := tenure_v1.begun(s, e);
      END IF;
    END IF;
    IF a.code IS NULL THEN
      IF p_ttl > 0 THEN
        e.until := greatest(e.until, s.now + p_ttl);
        e.first_life := false;
        s := tenure_v1.put(s, e);
        IF e.process <> 0 AND NOT e.on_behalf THEN s := tenure_v1.reach(s, e.process, true); END IF;
      END IF;
      a := tenure_v1.granted(s, e);
    END IF;
  ELSE
    a := tenure_v1.gone(s, p_id);
  END IF;
  s := tenure_v1.admit(s, false);
  a.more := s.moves = 0;
  PERFORM tenure_v1.save(s);
  RETURN a;
END $$;

-- Extends holds. A name whose row is locked is waited for, or answered Y: then it must be sent alone, and is in the way of
-- nobody. The names are locked in order, so that two batches never wait for each other.
CREATE FUNCTION tenure_v1.renew(p_spaces text[], p_names text[], p_ids uuid[], p_fences bigint[], p_ttls bigint[],
  p_waits boolean, OUT at bigint, OUT answer tenure_v1.answer)
RETURNS SETOF record LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  one record;
BEGIN
  FOR one IN SELECT * FROM unnest(p_spaces, p_names, p_ids, p_fences, p_ttls)
      WITH ORDINALITY AS x (space, name, id, fence, ttl, place) ORDER BY x.space, x.name COLLATE "C" LOOP
    at := one.place;
    answer := NULL;
    IF NOT p_waits THEN
      PERFORM FROM tenure.name n WHERE n.space = one.space AND n.name = one.name FOR NO KEY UPDATE SKIP LOCKED;
      IF NOT FOUND AND EXISTS (SELECT FROM tenure.name n WHERE n.space = one.space AND n.name = one.name) THEN
        answer.code := 'Y';
      END IF;
    END IF;
    IF answer.code IS NULL THEN
      answer := tenure_v1.renew_one(one.space, one.name, one.id, one.fence, one.ttl);
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

-- Claims that wait ask again, in one transaction. One that is not known to wait is answered Y, and must be sent alone,
-- with all that is to be known of it.
CREATE FUNCTION tenure_v1.look(p_spaces text[], p_names text[], p_ids uuid[], p_tickets bigint[], p_seen bigint[],
  p_process bigint, p_listens boolean, OUT at bigint, OUT answer tenure_v1.answer)
RETURNS SETOF record LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  one record;
BEGIN
  FOR one IN SELECT x.place, x.ticket AS returns, x.seen, n.space, n.name AS text, c.*
      FROM unnest(p_spaces, p_names, p_ids, p_tickets, p_seen)
        WITH ORDINALITY AS x (space, name, id, ticket, seen, place)
      LEFT JOIN tenure.name n ON n.space = x.space AND n.name = x.name
      LEFT JOIN tenure.claim c ON c.name = n.key AND c.id = x.id AND c.state < 2
      ORDER BY x.space, x.name COLLATE "C", x.place LOOP
    at := one.place;
    answer := NULL;
    -- One that has run out comes back as a claim of its own, which may set the capacity.
    IF one.id IS NULL OR one.until <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint THEN
      answer.code := 'Y';
    ELSE
      answer := tenure_v1.claim(ROW (one.space, one.text, one.id, one.weight, NULL, one.fixed, one.ttl, true,
        9007199254740991, one.returns, one.seen, one.keep, one.rerun, one.content, p_process, p_listens, false,
        one.owner, one.reason, one.meta, one.value, one.trace, one.on_behalf)::tenure_v1.asking);
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

-- A claim leaves, and the next ones are served.
CREATE FUNCTION tenure_v1.leave(p tenure_v1.leaving)
RETURNS tenure_v1.answer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  s tenure_v1.step;
  a tenure_v1.answer;
  e tenure.claim;
  r tenure.record;
  settles bigint := p.settles;
  moved integer;
  here text;
  at bigint;
  life bigint;
  k bigint;
  highest bigint;
  capacity bigint;
  waiting bigint;
  f bigint;
  ends bigint;
BEGIN
  IF current_setting('synchronous_commit') IN ('off', 'local') THEN PERFORM tenure_v1.survive(); END IF;
  -- The only hold of its name, and nobody waits, or one: what follows, in fewer statements.
  IF NOT (p.in_doubt OR p.unbegun OR p.only_waiting) AND p.settles IS NULL THEN
    here := tenure_v1.timeline();
    SELECT n.key, n.number, n.capacity, n.waiting, (n.alone).fence, least((n.alone).until, n.soonest)
      INTO k, highest, capacity, waiting, f, ends FROM tenure.name n
      WHERE n.space = p.space AND n.name = p.name AND (n.alone).id = p.id AND n.held = (n.alone).weight
        AND n.waiting <= 1 AND n.aside = 0 AND n.timeline = here AND (p.of_fence IS NULL OR (n.alone).fence = p.of_fence)
      FOR NO KEY UPDATE;
    at := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    IF ends > at AND waiting = 0 THEN
      WITH freed AS (
        DELETE FROM tenure.hold h WHERE h.ctid = (
            SELECT g.ctid FROM tenure.hold g WHERE g.name = k AND g.fence = f FOR UPDATE SKIP LOCKED)
          RETURNING h.name
      )
      UPDATE tenure.name n SET held = 0, fixed = 0, alone = NULL FROM freed WHERE n.key = freed.name;
      IF FOUND THEN
        a.code := 'R';
        a.more := false;
        RETURN a;
      END IF;
    ELSIF ends > at AND highest < 9007199254740991 THEN
      SELECT * INTO e FROM tenure.claim c WHERE c.name = k AND c.state = 0;
      highest := greatest(highest + 1, at);
      life := least(e.ttl, 2000000);
      -- If this ends here, the hold has no row any more, which the long form takes for freed.
      IF e.keep < 0 AND e.weight = capacity AND tenure_v1.free(k, f) AND tenure_v1.say(e, 'G ' || p.space || ' ' || e.ticket
          || ' ' || highest || ' ' || life || ' ' || (life < e.ttl)::integer || ' ' || p.name) THEN
        e.fence := highest;
        e.since := at;
        e.until := at + life;
        e.first_life := life < e.ttl;
        e.state := 2;
        WITH place AS (DELETE FROM tenure.claim c WHERE c.name = k AND c.id = e.id),
        hold AS (INSERT INTO tenure.hold (name, fence) VALUES (k, highest))
        UPDATE tenure.name n SET number = highest, held = e.weight, waiting = 0, fixed = n.fixed - (n.alone).fixed::integer,
          alone = e WHERE n.key = k;
        a.code := 'R';
        a.more := false;
        RETURN a;
      END IF;
    END IF;
  END IF;
  s := tenure_v1.open(p.space, p.name, p.in_doubt);
  IF s.key IS NULL THEN
    a.code := 'X';
    RETURN a;
  END IF;
  s := tenure_v1.expire(s);
  moved := s.moves;
  e := tenure_v1.find(s, p.id);
  -- Overdue, and only there because a transaction guards it.
  IF e.state = 2 AND e.until <= s.now THEN e := NULL; END IF;
  -- A turn is given back only in its first life: otherwise an answer has brought it to its claim.
  IF p.of_fence IS NOT NULL AND (e.state IS DISTINCT FROM 2 OR e.fence <> p.of_fence
        OR p.unbegun AND (e.first_life AND e.process = p.process) IS NOT TRUE)
      OR p.only_waiting AND (e.id IS NULL OR e.state = 2 OR e.process <> p.process) THEN
    s := tenure_v1.admit(s, false);
    a := tenure_v1.gone(s, p.id);
    a.more := s.moves = 0;
    PERFORM tenure_v1.save(s);
    RETURN a;
  END IF;
  -- Before the hold ends: its record may be older than `keep`, and counts while it is held.
  IF settles IS NULL AND p.unbegun AND e.id IS NOT NULL THEN settles := e.fence; END IF;
  IF settles IS NOT NULL THEN
    r := tenure_v1.record(s);
    -- A leave that reports an outcome proves that the once has begun.
    IF p.outcome IS NOT NULL AND e.state = 2 AND e.fence = settles AND e.keep >= 0 THEN
      IF tenure_v1.taken(s, e, r) IS NOT NULL THEN
        s := tenure_v1.end_hold(s, e);
        e := NULL;
      ELSIF r.fence IS DISTINCT FROM e.fence THEN
        s := tenure_v1.begun(s, e);
      END IF;
      r := tenure_v1.record(s);
    END IF;
    -- Even after the ttl, so that a slow holder can still report how it ended.
    IF r.fence = settles AND r.outcome IS NULL THEN
      IF p.outcome IS NOT NULL THEN
        r.outcome := p.outcome;
        r.until := s.now + r.keep;
        s := tenure_v1.set_record(s, r);
      ELSIF NOT r.doubt THEN
        s := tenure_v1.drop_record(s);
      END IF;
    END IF;
  END IF;
  IF e.state = 2 THEN
    -- Of holds that follow each other without a pause, one a second spans two seconds of the clock.
    s.brief := moved = 512 AND e.since / 1000000 = s.now / 1000000;
    s := tenure_v1.end_hold(s, e);
    a.code := 'R';
    IF s.waiting > 0 AND (tenure_v1.find(s, p.id)).id IS NOT NULL THEN PERFORM tenure_v1.look_soon(s); END IF;
  ELSIF e.id IS NOT NULL THEN
    s := tenure_v1.drop(s, e);
    a.code := 'Q';
  ELSE
    a := tenure_v1.gone(s, p.id);
  END IF;
  IF p.in_doubt THEN s := tenure_v1.trace(s, p.id, 't', s.now + 60000000, '', ''); END IF;
  s := tenure_v1.admit(s, false);
  a.more := s.moves = 0;
  PERFORM tenure_v1.save(s);
  RETURN a;
END $$;

-- An operator ends the hold with this fence.
CREATE FUNCTION tenure_v1.break_hold(p_space text, p_name text, p_fence bigint, p_by text, p_reason text)
RETURNS tenure_v1.answer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  s tenure_v1.step := tenure_v1.open(p_space, p_name, false);
  a tenure_v1.answer;
  e tenure.claim;
BEGIN
  a.code := 'M';
  IF s.key IS NULL THEN RETURN a; END IF;
  s := tenure_v1.expire(s);
  IF (s.alone).fence = p_fence THEN
    e := s.alone;
  ELSE
    SELECT * INTO e FROM tenure.claim c WHERE c.name = s.key AND c.state = 2 AND c.fence = p_fence;
  END IF;
  IF e.id IS NOT NULL THEN
    -- Its holder may ask once more before its own deadline, and must be told "broken", not "expired".
    s := tenure_v1.trace(s, e.id, 'b', greatest(e.until, s.now + e.ttl), p_by, p_reason);
    s := tenure_v1.end_hold(s, e);
    -- Its process may have begun to listen since it asked.
    PERFORM pg_notify('tenure_' || to_hex(e.process), tenure_v1.to_ended(s, 'B', e, octet_length(left(p_by, 500)) || ' '
      || octet_length(left(p_reason, 1000)) || ' ' || left(p_by, 500) || left(p_reason, 1000)));
    IF s.waiting > 0 AND (tenure_v1.find(s, e.id)).id IS NOT NULL THEN PERFORM tenure_v1.look_soon(s); END IF;
    a.code := 'D';
  END IF;
  s := tenure_v1.admit(s, false);
  a.more := s.moves = 0;
  PERFORM tenure_v1.save(s);
  RETURN a;
END $$;

-- An operator changes the capacity. Refused while a claim has a fixed one.
CREATE FUNCTION tenure_v1.resize(p_space text, p_name text, p_capacity bigint)
RETURNS tenure_v1.answer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  s tenure_v1.step := tenure_v1.open(p_space, p_name, true);
  a tenure_v1.answer;
  e tenure.claim;
BEGIN
  s := tenure_v1.expire(s);
  IF s.fixed > 0 THEN
    a.code := 'C';
  ELSE
    a.code := 'D';
    s.capacity := p_capacity;
    s.resized_until := s.now + 86400000000;
    -- A head that can never fit would keep everyone behind it waiting for ever.
    FOR e IN SELECT c.* FROM tenure.claim c WHERE c.name = s.key AND c.state < 2 AND c.weight > p_capacity
        LIMIT s.moves LOOP
      s := tenure_v1.refuse(s, e);
    END LOOP;
  END IF;
  s := tenure_v1.admit(s, false);
  a.more := s.moves = 0;
  PERFORM tenure_v1.save(s);
  RETURN a;
END $$;

-- Forgets the record of a once, if it is still the one that the operator has seen and nobody holds the once.
CREATE FUNCTION tenure_v1.forget(p_space text, p_name text, p_fence bigint, p_settled boolean)
RETURNS tenure_v1.answer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  s tenure_v1.step := tenure_v1.open(p_space, p_name, false);
  a tenure_v1.answer;
  r tenure.record;
BEGIN
  a.code := 'M';
  IF s.key IS NULL THEN RETURN a; END IF;
  s := tenure_v1.expire(s);
  r := tenure_v1.record(s);
  IF s.held = 0 AND r.fence = p_fence AND (r.outcome IS NOT NULL) = p_settled THEN
    s := tenure_v1.drop_record(s);
    a.code := 'D';
  END IF;
  s := tenure_v1.admit(s, false);
  a.more := s.moves = 0;
  PERFORM tenure_v1.save(s);
  RETURN a;
END $$;

-- No claim asks: this continues a step that stopped at its limit.
CREATE FUNCTION tenure_v1.tick(p_space text, p_name text)
RETURNS tenure_v1.answer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
  s tenure_v1.step := tenure_v1.open(p_space, p_name, false);
  a tenure_v1.answer;
BEGIN
  a.code := 'D';
  IF s.key IS NULL THEN RETURN a; END IF;
  s := tenure_v1.expire(s);
  s := tenure_v1.admit(s, false);
  a.more := s.moves = 0;
  PERFORM tenure_v1.save(s);
  RETURN a;
END $$;

-- The holds that transactions guard, each as the lock that tenure.guard takes, and the session; NULL if the transaction
-- was prepared and has none.
CREATE FUNCTION tenure_v1.guarded(OUT mark bigint, OUT pid integer) RETURNS SETOF record LANGUAGE sql STABLE AS $$
  SELECT (l.classid::bigint << 32) | l.objid::bigint, l.pid FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.mode = 'ShareLock'
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
$$;

-- The same with their names, of all names or of one, and for how long each hold has been overdue and each transaction
-- has been open, as far as the role may see that.
CREATE FUNCTION tenure_v1.guards(p_space text, p_name text, OUT space text, OUT name text, OUT fence bigint,
  OUT overdue bigint, OUT pid integer, OUT open_for bigint)
RETURNS SETOF record LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  WITH guarded AS MATERIALIZED (SELECT * FROM tenure_v1.guarded()),
  now AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at)
  SELECT n.space, n.name, h.fence, greatest(now.at - coalesce(
        CASE WHEN (n.alone).fence = h.fence THEN (n.alone).until END,
        (SELECT c.until FROM tenure.claim c WHERE c.name = n.key AND c.state = 2 AND c.fence = h.fence), now.at), 0),
      g.pid, now.at - (SELECT (extract(epoch FROM a.xact_start) * 1000000)::bigint FROM pg_stat_activity a
        WHERE a.pid = g.pid)
    FROM tenure.hold h JOIN guarded g ON g.mark = hashint8extended(h.fence, h.name) JOIN tenure.name n ON n.key = h.name,
      now
    WHERE p_name IS NULL OR n.space = p_space AND n.name = p_name
$$;

-- Who holds and who waits, by name: kind 2 holds, 0 waits, 9 is the record of a once. Waiting claims whose process is
-- not there are left out, and holds that are overdue, unless a transaction guards them. One name more than asked for says
-- that there are more.
CREATE FUNCTION tenure_v1.view(p_space text, p_from text, p_to text, p_after text, p_limit bigint, p_record boolean,
  OUT name text, OUT capacity bigint, OUT kind integer, OUT fence bigint, OUT ticket bigint, OUT weight bigint,
  OUT since bigint, OUT remaining bigint, OUT keep bigint, OUT outcome bytea, OUT owner text, OUT reason text,
  OUT meta text[], OUT value text, OUT trace text)
RETURNS SETOF record LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  WITH now AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at),
  page AS MATERIALIZED (
    SELECT n.key, n.name, n.capacity, n.alone FROM tenure.name n, now
      WHERE n.space = p_space AND n.name >= p_from AND n.name <= p_to AND (p_after IS NULL OR n.name > p_after)
        AND ((n.alone).until > now.at OR n.held > 0 OR n.waiting > 0 OR p_record)
        AND (p_record OR (n.alone).until > now.at OR EXISTS (
          SELECT FROM tenure.claim c WHERE c.name = n.key AND c.until > now.at
            AND (c.state = 2 OR tenure_v1.is_there(c.process, c.listens))) OR n.held > 0 AND EXISTS (
          SELECT FROM tenure.hold h WHERE h.name = n.key
            AND hashint8extended(h.fence, h.name) IN (SELECT g.mark FROM tenure_v1.guarded() g)))
      ORDER BY n.name LIMIT p_limit
  ),
  claims AS MATERIALIZED (
    SELECT p.name AS of, p.capacity, (p.alone).* FROM page p WHERE (p.alone).id IS NOT NULL
    UNION ALL
    SELECT p.name, p.capacity, c.* FROM page p JOIN tenure.claim c ON c.name = p.key
  ),
  live AS MATERIALIZED (
    SELECT c.* FROM claims c, now
      WHERE CASE WHEN c.until > now.at THEN c.state = 2 OR tenure_v1.is_there(c.process, c.listens)
        ELSE c.state = 2 AND hashint8extended(c.fence, c.name) IN (SELECT g.mark FROM tenure_v1.guarded() g) END
  )
  SELECT c.of, c.capacity, CASE c.state WHEN 2 THEN 2 ELSE 0 END, c.fence, c.ticket, c.weight,
      greatest(now.at - c.since, 0), greatest(c.until - now.at, 0), c.keep, NULL::bytea, c.owner, c.reason, c.meta,
      c.value, c.trace
    FROM live c, now
  UNION ALL
  SELECT p.name, p.capacity, 9, r.fence, 0, 0, 0, greatest(r.until - now.at, 0), r.keep, r.outcome, '', NULL,
      '{}'::text[], NULL, NULL
    FROM page p JOIN tenure.record r ON r.name = p.key, now
    WHERE p_record AND (r.until > now.at OR EXISTS (SELECT FROM live c WHERE c.state = 2))
$$;

-- Ends what has run out and deletes names that nobody uses and that have nothing left to remember, among these pages of
-- the table. Returns how many names it deleted and in how many it ended something, and how many pages there are. It waits
-- for nobody, so that it can lock many names in any order.
CREATE FUNCTION tenure_v1.sweep(p_from bigint, p_pages bigint, OUT deleted bigint, OUT ended bigint, OUT pages bigint)
RETURNS record LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  low tid := ('(' || p_from || ',0)')::tid;
  high tid := ('(' || p_from + p_pages || ',0)')::tid;
  one record;
  highest bigint;
BEGIN
  ended := 0;
  pages := pg_relation_size('tenure.name') / current_setting('block_size')::bigint;
  FOR one IN SELECT n.space, n.name FROM tenure.name n
      WHERE n.ctid >= low AND n.ctid < high AND least((n.alone).until, n.soonest) <= now - 60000000
      LIMIT 256 FOR NO KEY UPDATE SKIP LOCKED LOOP
    PERFORM tenure_v1.tick(one.space, one.name);
    ended := ended + 1;
  END LOOP;
  WITH idle AS MATERIALIZED (
    SELECT n.key FROM tenure.name n
      WHERE n.ctid >= low AND n.ctid < high AND n.held = 0 AND n.waiting = 0
        -- Numbers follow the clock: this one was used in the last minute, unless its numbers run ahead of it.
        AND NOT n.number BETWEEN now - 60000000 AND now + 60000000
        AND greatest(n.resized_until, n.traced_until, n.record_until) <= now
      FOR UPDATE SKIP LOCKED
  ), gone AS (
    DELETE FROM tenure.name n USING idle WHERE n.key = idle.key RETURNING n.key, n.number
  ), records AS (
    DELETE FROM tenure.record r USING gone WHERE r.name = gone.key
  ), traces AS (
    DELETE FROM tenure.trace t USING gone WHERE t.name = gone.key
  )
  SELECT count(*), max(gone.number) INTO deleted, highest FROM gone;
  IF highest IS NOT NULL THEN UPDATE tenure.floor f SET number = highest WHERE f.number < highest; END IF;
END $$;
