-- The rule of ledger.rs, on the keys of a name. How these look:
--
-- name       absent
--            | plain, a string for one holder alone: id .. "capacity process weight fixed ttl since fence
--              details"; the key's own expiry is the end of the hold, and since 0 means end - ttl
--            | a hash:
--                '#'             totals: "capacity resized held memory away expiry", then " end fence first
--                                since id" of a hold that took the whole capacity, or else " top", the
--                                highest fence that the name has given
--                '#r'            the record of a once
--                id              a claim: "process ticket weight fixed ttl keep rerun since end details";
--                                since and end are those of its place, rerun is followed by the
--                                fingerprint of the content, if there is one; fixed is 1 for a fixed
--                                capacity, plus 2 if a server made the claim for one of its clients
--                'f' .. id       any other hold: "end fence first since"
--                't' .. id       a trace
--                '!' .. process  that process cannot be reached
-- line       a sorted set, with scores in ranges that do not meet:
--                -ticket         'a' .. spot   claims that were set aside
--                end             'h' .. id     holds
--                1e14 + end      'p' .. id     places
--                2e14 + end      't' .. id     traces
--                3e14            the member that is always there
--                ticket          'w' .. spot   waiting claims
--            a spot is id .. process .. ticket .. end .. "weight ttl", or 'o' at its end for a once
-- partition  a hash:
--                'n'             the highest number given, or reserved for a process that hands over
--                'run'           the server's run id
--                'at'            when this run was first seen after another
--                'old'           the highest number at that time
--                'nb'            the time before which nothing is granted
--                'mute'          when a user that may not publish was last seen, in seconds
--
-- Reads come first, then a write that changes nothing or a number that may be wasted: a server that refuses
-- writes must do so before anything is published. Before that, `ready` finds out what this user may not do: no
-- step stops between its first write and its last. Numbers are converted to strings by '%d' only, and passed to
-- commands as strings: Lua would print a number with all its digits, which takes longer than most steps.
local K, Z, P = KEYS[1], KEYS[2], KEYS[3]
-- The terms, first argument of every step: flags (w may wait, h in hand, n wait after a restart,
-- s sharded channels, f or s another server may take over), the channels' prefix, the partition, the longest ttl.
local flags, channel, partition, longest = ARGV[1]:match('^(%S+) (%S+) (%d+) (%d+)$')
local call = redis.call
local PLACES, TRACES, TICKETS, FIRST_LIFE, PLACE_LIFE = 1e14, 2e14, 1e15, 2000, 60000
-- How long a server that has taken over grants nothing, so that all holders can renew first.
local SETTLING = 1000
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now < TICKETS / 1000 then
  return redis.error_reply('CLOCK the clock of the server is before 2001')
end
local wall = time[1] * 1000000 + time[2]
local moves, need, granting, resume = 512, 0, true, nil
-- Whether this user may not publish; whether this step asks for a place; the claim that was found to be reachable.
local mute, asks, there
local cap, resized, held, memory, away, expiry = 0, 0, 0, 0, 0, 0
local cache, alone, whole, totals, highest, lined, was_lined = {}, nil, nil, nil, nil, nil, nil
-- The highest fence that the name has given, and the highest possible number: more does not fit a double.
local top, HIGHEST = 0, 9007199254740991

local function int(n) return string.format('%d', n) end

local function more(code)
  return code .. (moves > 0 and '' or '+') .. (mute and '!' or '')
end

-- The line begins with a member that stays. It is too long for the compact encoding, in which each lookup
-- would scan the whole line, and it keeps the key alive throughout a step.
local function line_up()
  if lined then return end
  lined = true
  call('ZADD', Z, '300000000000000', string.rep('-', 65))
end

local function parse(id, text, hold)
  local process, ticket, weight, fixed, ttl, keep, rerun, since, til, at = text:match(
    '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) ()')
  local fence, first = '0', '0'
  if hold then til, fence, first, since = hold:match('^(%d+) (%d+) (%d) (%d+)') end
  return { id = id, ticket = ticket, weight = tonumber(weight), fixed = fixed, ttl = tonumber(ttl),
    process = process, keep = tonumber(keep), rerun = rerun, since = tonumber(since),
    til = tonumber(til), fence = fence, first = first, details = text:sub(at) }
end

local function find(id)
  local entry = cache[id]
  if entry == nil then
    if whole and whole.id == id then
      local text = call('HGET', K, id)
      entry = text and parse(id, text, whole.text)
    else
      local found = call('HMGET', K, id, 'f' .. id)
      entry = found[1] and parse(id, found[1], found[2])
      -- A hold stays in the form in which it was granted, even if the capacity changes.
      if entry then entry.in_part = found[2] end
    end
    cache[id] = entry
  end
  return entry
end

-- Whether a server made the claim for one of its clients: its expiry says nothing about the process.
local function on_behalf(e) return e.fixed == '2' or e.fixed == '3' end

local function claim_text(e)
  return table.concat({ e.process, e.ticket, e.weight, e.fixed, int(e.ttl), int(e.keep), e.rerun,
    int(e.since), int(e.til), e.details }, ' ')
end

local function hold_text(e)
  return table.concat({ int(e.til), e.fence, e.first, int(e.since) }, ' ')
end

local function spot(e)
  return e.id .. e.process .. e.ticket .. int(e.til)
    .. (e.keep < 0 and e.weight .. ' ' .. int(e.ttl) or 'o')
end

-- Stores a claim; `only_hold` if the claim itself is stored already and only its hold is new.
local function put(e, only_hold)
  if not e.in_line then cache[e.id] = e end
  if not only_hold then call('HSET', K, e.id, claim_text(e)) end
  if e.fence == '0' then
    call('ZADD', Z, e.ticket, 'w' .. spot(e), int(PLACES + e.til), 'p' .. e.id)
  elseif whole and whole.id == e.id or e.weight == cap and not e.in_part then
    whole = { id = e.id, til = e.til, text = hold_text(e) }
  else
    call('HSET', K, 'f' .. e.id, hold_text(e))
    call('ZADD', Z, int(e.til), 'h' .. e.id)
  end
  line_up()
  need = math.max(need, e.til)
end

-- Whether there may be other holds than one that took the whole capacity.
local function has_parts()
  return held > 0 and (not whole or resized > 0)
end

local function add(e)
  if e.fence ~= '0' then held = held + e.weight end
  put(e)
end

local function drop(e)
  cache[e.id] = false
  call('HDEL', K, e.id, 'f' .. e.id)
  if whole and whole.id == e.id then
    held = held - e.weight
    whole = nil
  elseif e.fence ~= '0' then
    held = held - e.weight
    call('ZREM', Z, 'h' .. e.id)
  else
    call('ZREM', Z, 'w' .. spot(e), 'p' .. e.id, 'a' .. spot(e))
  end
end

-- Turns the name's plain form into a hash: from now on there is more than one claim to store.
local function unfold()
  if not alone then return end
  local e = alone
  alone = nil
  call('ZCARD', Z)
  call('DEL', K)
  add(e)
end

local function remember(id, text, til)
  line_up()
  call('HSET', K, 't' .. id, text)
  call('ZADD', Z, int(TRACES + til), 't' .. id)
  memory = math.max(memory, til)
end

local function traced(id)
  local text = memory > now and call('HGET', K, 't' .. id)
  if not text then return end
  local til, kind, note = text:match('^(%d+) (%a) (.*)$')
  if tonumber(til) > now then return kind, note end
end

local function gone(id)
  local kind, note = traced(id)
  if kind == 'B' then return { more('X'), note } end
  return { more('X') }
end

