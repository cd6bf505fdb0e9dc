-- Where names are kept. All times are microseconds since 1970 on the server's clock; spans are microseconds.
CREATE SCHEMA IF NOT EXISTS tenure;

-- Which version of this file made the tables.
CREATE TABLE IF NOT EXISTS tenure.layout (
  version integer NOT NULL
);
-- Whoever may use the schema.
GRANT SELECT ON tenure.layout TO PUBLIC;

-- The highest number of all names that were deleted. A name that comes back counts on from here.
CREATE TABLE IF NOT EXISTS tenure.floor (
  number bigint NOT NULL
);
INSERT INTO tenure.floor SELECT 0 WHERE NOT EXISTS (SELECT FROM tenure.floor);

-- A claim that waits or holds. State: 0 waiting, 1 set aside, 2 held. `until` is the end of the hold or the place.
CREATE TABLE IF NOT EXISTS tenure.claim (
  name bigint NOT NULL,
  id uuid NOT NULL,
  ticket bigint NOT NULL,
  state smallint NOT NULL,
  until bigint NOT NULL,
  process bigint NOT NULL,
  -- Whether its process was listening for its turn when it last asked. Otherwise it is not known whether it is there.
  listens boolean NOT NULL,
  -- Made by a server for one of its clients: it belongs to the process that asked last, whose end it does not share.
  on_behalf boolean NOT NULL,
  weight bigint NOT NULL,
  fixed boolean NOT NULL,
  ttl bigint NOT NULL,
  since bigint NOT NULL,
  -- 0 while it waits.
  fence bigint NOT NULL,
  first_life boolean NOT NULL,
  -- Of a once: how long its record is kept, -1 if it is none.
  keep bigint NOT NULL,
  rerun boolean NOT NULL,
  -- All zeros agree with any content.
  content uuid NOT NULL,
  owner text NOT NULL,
  reason text,
  -- Keys and values in turn.
  meta text[] NOT NULL,
  value text,
  trace text,
  PRIMARY KEY (name, id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS claim_line ON tenure.claim (name, state, ticket, id);

-- A name. Every step locks its row, so that the steps of a name come one after the other.
CREATE TABLE IF NOT EXISTS tenure.name (
  key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- l: lock, e: election, o: once.
  space text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  -- The highest number given.
  number bigint NOT NULL DEFAULT 0,
  -- The timeline of the server that took the last step.
  timeline text NOT NULL DEFAULT '',
  capacity bigint NOT NULL DEFAULT 0,
  resized_until bigint NOT NULL DEFAULT 0,
  held bigint NOT NULL DEFAULT 0,
  -- Claims that wait, those set aside among them, and how many these are.
  waiting bigint NOT NULL DEFAULT 0,
  aside bigint NOT NULL DEFAULT 0,
  fixed bigint NOT NULL DEFAULT 0,
  -- No row of tenure.claim for this name ends before.
  soonest bigint NOT NULL DEFAULT 9223372036854775807,
  traced_until bigint NOT NULL DEFAULT 0,
  record_until bigint NOT NULL DEFAULT 0,
  -- A hold that took the whole capacity is kept here, so that a name that nobody waits for is one row.
  alone tenure.claim,
  UNIQUE (space, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0);

-- One row for each hold: a transaction that locks it FOR KEY SHARE keeps the hold from ending. It is updated once at
-- most: when the hold is to end and cannot, so that no other transaction keeps it any longer.
CREATE TABLE IF NOT EXISTS tenure.hold (
  name bigint NOT NULL,
  fence bigint NOT NULL,
  ended boolean NOT NULL DEFAULT false,
  PRIMARY KEY (name, fence)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- What is remembered of claims that have ended. Kind: t left in doubt, b broken.
CREATE TABLE IF NOT EXISTS tenure.trace (
  name bigint NOT NULL,
  id uuid NOT NULL,
  kind text NOT NULL,
  until bigint NOT NULL,
  ended_by text NOT NULL,
  reason text NOT NULL,
  PRIMARY KEY (name, id)
);

-- The record of a once.
CREATE TABLE IF NOT EXISTS tenure.record (
  name bigint PRIMARY KEY,
  fence bigint NOT NULL,
  keep bigint NOT NULL,
  until bigint NOT NULL,
  content uuid NOT NULL,
  doubt boolean NOT NULL,
  -- NULL until it is settled.
  outcome bytea
);
