-- The rule of ledger.rs on what Redis keeps of a name:
--   name  absent | plain: one holder alone, id .. "capacity process weight fixed ttl since fence
--         details", where the key's own expiry is the end of the hold and since 0 is end - ttl
--         | a hash: '#' totals ("capacity resized held memory away expiry", and " end fence first
--         since id" of a hold that took the whole capacity, or else " top", the highest fence that the
--         name has given), '#r' the record of a once,
--         id -> claim ("process ticket weight fixed ttl keep rerun since end details", the last
--         two of its place, and rerun followed by the fingerprint of the content, if it has one), 'f' .. id -> any other hold ("end fence first since"), 't' .. id -> trace,
--         '!' .. process -> that process cannot be reached
--   line  a sorted set, in ranges that do not meet: -ticket 'a' .. spot set aside, end 'h' .. id
--         holds, 1e14 + end 'p' .. id places, 2e14 + end 't' .. id traces, ticket 'w' .. spot
--         waiting, 3e14 the member that is always there; a spot is id .. process .. ticket .. end .. "weight ttl", or 'o' of a once
-- Reads come first, then a write that changes nothing or a number that may go to waste: a server
-- that refuses writes must refuse before anything was said. What this user may not do is found out
-- before that, by `ready`: no step stops between its first write and its last. Numbers reach strings by '%d' only,
-- and commands as strings: a number is printed with all its digits, which takes longer than most steps.
--   partition  a hash: 'n' the highest number given, 'run' the server's run, 'at' when it was first
--         seen after another, 'old' the highest number then, 'nb' not before when anything is granted,
--         'mute' when a user was last seen that may not publish, in seconds
local K, Z, P = KEYS[1], KEYS[2], KEYS[3]
-- The terms, first argument of every step: flags (w may wait, h in hand, n wait after a restart,
-- s sharded channels, f or s another server may take over), the channels' prefix, the partition, the
-- longest ttl.
local flags, channel, partition, longest = ARGV[1]:match('^(%S+) (%S+) (%d+) (%d+)$')
local call = redis.call
local PLACES, TRACES, TICKETS, FIRST_LIFE, PLACE_LIFE = 1e14, 2e14, 1e15, 2000, 60000
-- How long a server that has taken over grants nothing: meanwhile all holders look.
local SETTLING = 1000
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now < TICKETS / 1000 then
  return redis.error_reply('CLOCK the clock of the server is before 2001')
end
local wall = time[1] * 1000000 + time[2]
local moves, need, granting, resume = 512, 0, true, nil
-- This user may not publish. Someone asks for a place in line, and who was found to be there.
local mute, asks, there
local cap, resized, held, memory, away, expiry = 0, 0, 0, 0, 0, 0
local cache, alone, whole, totals, highest, lined, was_lined = {}, nil, nil, nil, nil, nil, nil
-- The highest fence that the name has given, and the highest number of all: more does not fit a double.
local top, HIGHEST = 0, 9007199254740991

local function int(n) return string.format('%d', n) end

local function more(code)
  return code .. (moves > 0 and '' or '+') .. (mute and '!' or '')
end

-- The line begins with a member that stays: too long for the compact form, in which each look would
-- walk the whole line, and there so that no step finds it gone halfway.
local function line_up()
  if lined then return end
  lined = true
  call('ZADD', Z, '300000000000000', string.rep('-', 65))
end

local function parse(id, text, hold)
  local process, ticket, weight, fixed, ttl, keep, rerun, since, til, at = text:match(
    '^(%x+) (%d+) (%d+) (%d) (%d+) (-?%d+) (%x+) (%d+) (%d+) ()')
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
      -- It stays in the form in which it was granted, whatever becomes of the capacity.
      if entry then entry.in_part = found[2] end
    end
    cache[id] = entry
  end
  return entry
end

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

-- Keeps a claim; `only_hold` if it was kept before as a claim, and only its hold is new.
local function put(e, only_hold)
  cache[e.id] = e
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

-- The name's plain form becomes a hash: from now on there is more than one claim to keep.
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

-- Raises the numbers to what is said to have been seen, and to what the name itself has given: the
-- server may have lost the partition and kept the name. Below 1e15 it has lost its memory; more than a
-- day ahead nobody can have seen.
local function raise(seen)
  local given = last and last - 2 or tonumber(call('HGET', P, 'n') or 0)
  if not given then return 'FOREIGN the key of this partition is not ours' end
  highest = last or given
  if given < TICKETS or given < seen or given < top then
    if seen > wall + 86400000000 and given < HIGHEST - 2 then return 'AHEAD the number is more than a day ahead' end
    local lost = given < TICKETS
    if lost or given < top then
      -- Nor may it repeat what those who wait have been given.
      local line = call('ZRANGEBYSCORE', Z, '1000000000000000', '+inf')
      if line[1] then top = math.max(top, line[#line]:sub(34, 49) + 1) end
    end
    given = math.max(given, seen, top, lost and wall or 0)
    highest, last = given, nil
    call('HSET', P, 'n', int(highest))
    if lost and flags:find('n', 1, true) then
      call('HSET', P, 'nb', int(now + longest))
    end
  end
  -- One for a ticket and one for a fence.
  if given > HIGHEST - 2 then granting = false end
end

-- All that this user may not do is refused here. Before 7.0 that is found out by trying, in forms that
-- change nothing. `seen`, of a claim: the numbers go on above it.
local function ready(seen)
  local wrong = P and raise(seen or 0)
  if wrong then return redis.error_reply(wrong) end
  local may, spare = redis.acl_check_cmd, K .. '~'
  if not may then
    may = function(...)
      call(...)
      return true
    end
    -- A write that a full server does not refuse, so that it refuses none of what follows; a claim it may.
    if not seen then call('HDEL', spare, '~') end
  end
  local missing = not may('HSET', P or K, 'n', int(highest or 0)) and 'HSET'
    or not may('HDEL', spare, '~') and 'HDEL' or not may('HMGET', spare, '~') and 'HMGET'
    or not may('DEL', spare) and 'DEL' or not may('PEXPIRE', spare, '1') and 'PEXPIRE'
    or not may('ZADD', Z, 'XX', '1', '~') and 'ZADD' or not may('ZREM', Z, '~') and 'ZREM'
    or not may('ZCARD', Z) and 'ZCARD' or not may('ZCOUNT', Z, '0', '0') and 'ZCOUNT'
    or not may('ZRANGEBYSCORE', Z, '0', '0') and 'ZRANGEBYSCORE'
  if missing then
    return redis.error_reply('NOPERM this user may not run ' .. missing .. ' on keys of tenure')
  end
end

-- The next number, never behind the server's clock: a partition that was lost, or comes back from
-- elsewhere, must not repeat what was given meanwhile. If it is for a place, it is above its ticket and
-- the number after that, which was reserved with it.
-- What a claim had reserved goes to waste.
local function number(ticket)
  last = nil
  highest = math.max(highest, wall - 1, (ticket or 0) + 1) + 1
  call('HSET', P, 'n', int(highest))
  return int(highest)
end

-- The mark goes when all places that it stands for have ended.
local function unreachable(process)
  line_up()
  if call('HSET', K, '!' .. process, '1') == 1 then away = away + 1 end
  call('ZADD', Z, int(TRACES + now + PLACE_LIFE), '!' .. process)
end

-- Contact: what was set aside of this process comes back to its place.
local function reach(process)
  if away == 0 or call('HDEL', K, '!' .. process) == 0 then return end
  away = away - 1
  call('ZREM', Z, '!' .. process)
  for _, member in ipairs(call('ZRANGEBYSCORE', Z, '-inf', '(0')) do
    if member:sub(18, 33) == process then
      call('ZREM', Z, member)
      call('ZADD', Z, member:sub(34, 49), 'w' .. member:sub(2))
    end
  end
end

local function aside(e)
  call('ZREM', Z, 'w' .. spot(e))
  call('ZADD', Z, '-' .. e.ticket, 'a' .. spot(e))
end

-- Whether it was heard. Where this user may not publish, nobody hears anything.
local function say(e, text)
  local publish = flags:find('s', 1, true) and 'SPUBLISH' or 'PUBLISH'
  local heard = redis.pcall(publish, channel .. e.process, text)
  if type(heard) == 'number' then return heard > 0 end
  if P and not mute then call('HSET', P, 'mute', time[1]) end
  mute = true
  return false
end

local function ended(from, limit)
  return call('ZRANGEBYSCORE', Z, int(from), int(from + now), 'LIMIT', '0', limit)
end

-- The claim of a member. A server that evicts may have lost it; then the member goes, too.
local function known(member)
  local e = find(member:sub(2, 17))
  if not e then call('ZREM', Z, member) end
  return e
end

-- A hold from before this server took over may have been renewed where it was: it lasts its ttl from
-- the first contact, as if that had been the last renewal.
local function goes_on(e)
  local at, old = unpack(call('HMGET', P, 'at', 'old'))
  if not old or tonumber(e.fence) > tonumber(old) then return end
  local til = at + SETTLING + e.ttl
  if til <= now then return end
  e.til = til
  put(e, true)
  return true
end

-- Holds whose time is over end in every step. Places and traces are swept when someone joins; one
-- at the head of the line is seen there.
local function expire(sweep)
  -- Without its partition a step does not know whether the server has just taken over.
  if not P then return end
  if whole and whole.til <= now then
    local e = find(whole.id)
    moves = moves - 1
    if not e then
      held, whole = 0, nil
    elseif not goes_on(e) then
      drop(e)
      unreachable(e.process)
    end
  end
  for _, member in ipairs(ended(0, moves)) do
    local e = known(member)
    moves = moves - 1
    if e and not goes_on(e) then
      drop(e)
      unreachable(e.process)
    end
  end
  if not sweep or moves == 0 then return end
  for _, member in ipairs(ended(PLACES, moves)) do
    local e = known(member)
    moves = moves - 1
    if e then drop(e) end
  end
  if memory == 0 and away == 0 then return end
  local traces = ended(TRACES, 64)
  for _, member in ipairs(traces) do
    call('ZREM', Z, member)
    local gone = call('HDEL', K, member)
    if member:sub(1, 1) == '!' then away = away - gone end
  end
  if memory <= now and #traces < 64 then memory = 0 end
end

local function record()
  local text = call('HGET', K, '#r')
  if not text then return end
  local fence, keep, til, settled, content, at = text:match('^(%d+) (%d+) (%d+) (%d)(%x*) ()')
  if held > 0 or tonumber(til) > now then
    return fence, tonumber(keep), settled == '1' and text:sub(at), content, settled == '2'
  end
end

-- Settled: 0 not yet, 1 it is, 2 not yet, and neither was one before it.
local function set_record(fence, keep, content, doubt, outcome)
  local til = now + keep
  call('HSET', K, '#r', table.concat(
    { fence, int(keep), int(til), (outcome and '1' or doubt and '2' or '0') .. content, outcome or '' }, ' '))
  memory = math.max(memory, til)
end

-- Whether a claim of a once needs no turn any more, and what it is told. Who asks is also told, while
-- someone is at it, that it was started with other content.
local function done_before(keep, rerun, asks)
  if keep < 0 then return end
  local fence, _, outcome, content = record()
  if not fence then return end
  local own = rerun:sub(2)
  local agrees = own == content or own == '' or content == ''
  if not agrees and (asks or held == 0) then return 'O' end
  if outcome then return 'S', outcome end
  if rerun:sub(1, 1) == '0' and held == 0 then return 'U' end
end

-- A once has begun if its owner is there to hear of it (`in_hand`). If it was only told, it begins when
-- the turn is taken, and what is over must not count again while it is held.
local function grant(e, fence, life, in_hand)
  local place = 'w' .. spot(e)
  local before, _, outcome
  if e.keep >= 0 then before, _, outcome = record() end
  e.since, e.til, e.fence, e.first = now, now + life, fence, life < e.ttl and '1' or '0'
  held = held + e.weight
  top = math.max(top, tonumber(fence))
  if e.keep >= 0 and in_hand then
    set_record(fence, e.keep, e.rerun:sub(2), before and not outcome)
  elseif e.keep >= 0 and not before then
    call('HDEL', K, '#r')
  end
  put(e, true)
  -- Only now: a line that is empty for a moment would lose its expiry.
  call('ZREM', Z, place, 'p' .. e.id)
end

-- The owner of a hold takes it: a once has begun, unless it is over meanwhile. Then the hold ends, and
-- this is what its owner is told.
local function take(e)
  if e.keep < 0 then return end
  local fence, _, outcome, content = record()
  if fence == e.fence then return end
  local own = e.rerun:sub(2)
  local told
  if fence and own ~= content and own ~= '' and content ~= '' then
    told = 'O'
  elseif outcome then
    told = 'S'
  end
  if told then
    drop(e)
    return told, outcome
  end
  set_record(e.fence, e.keep, own, fence)
end

-- Ends a claim that is not this step's own; what it was is no secret any more.
local function tell_end(e, text)
  moves = moves - 1
  drop(e)
  say(e, 'E ' .. text)
end

local function first_end()
  local first = call('ZRANGEBYSCORE', Z, '0', '(100000000000000', 'LIMIT', '0', '1')[1]
  local e = first and find(first:sub(2))
  if whole and not (e and e.til < whole.til) then return find(whole.id) end
  return e
end

-- A turn by push: yours, for a first life. The next in line, `heir`, is told with it when to look if
-- both live in one process.
local function push(e, heir)
  local fence = number(e.ticket)
  local life = math.min(e.ttl, FIRST_LIFE)
  local text = table.concat({ 'G', partition, e.ticket, fence, int(life),
    life < e.ttl and 1 or 0 }, ' ')
  local together = heir and heir.process == e.process
  if together then
    local first = held > 0 and first_end()
    local ends = first and first.til - now or life
    text = table.concat({ text, heir.ticket, int(math.max(0, math.min(life, ends))) }, ' ')
  end
  if not say(e, text) then return false end
  grant(e, fence, life)
  return true, together
end

-- Nobody listens where a server has just come up: for a second nobody is set aside.
local function just_up()
  local up = tonumber(call('HGET', P, 'at') or 0)
  if now - up < 1000 then
    resume = up + 1000
    return true
  end
end

-- Nobody can be granted it for now. Someone who can hear must look when that is over: those who cannot
-- will when they are back.
local function look_later(asker)
  local line = call('ZRANGEBYSCORE', Z, '1000000000000000', '+inf', 'LIMIT', '0', '64')
  for _, member in ipairs(line) do
    local e = known(member)
    local text = e and 'L ' .. partition .. ' ' .. e.ticket .. ' ' .. int(math.max(0, resume - now))
    if text and (e.id == asker or say(e, text)) then return end
  end
end

-- Whether one that holds up who asks cannot be reached: nobody hands over to it, so that nobody else
-- would find out.
local function is_missing(e)
  if not asks or there == e.id then return false end
  if say(e, 'P') then
    there = e.id
    return false
  end
  return not mute and not just_up()
end

-- What ends with this step was held so briefly that the others were told not long ago.
local brief

-- A turn was pushed to `process`. If it is not taken, someone must look when it has run out: the next in
-- line (`hinted`: it knows), and others, in case that the next does not react either: one claim for each
-- process of the first eight, and the last of 64. These are told no more than once a second.
local function tell_when_to_look(process, hinted)
  local line = call('ZRANGEBYSCORE', Z, '1000000000000000', '+inf', 'LIMIT', '0', brief and '1' or '64')
  if not line[1] then return end
  local first = first_end()
  local after = math.max(0, (first and first.til or now) - now)
  local told, later = {}, 0
  for at, member in ipairs(line) do
    local to, ticket = member:sub(18, 33), member:sub(34, 49)
    if (at <= 8 or at == #line) and not told[to] and member:sub(50, 62) - now > 0 then
      if later > 0 or not hinted then
        say({ process = to }, 'L ' .. partition .. ' ' .. ticket .. ' ' .. int(after + later))
      end
      told[to], told[process], later = true, true, later + 25
    end
  end
end

-- This step has settled a once. Whoever waits for it is told, also while a turn that was pushed is not taken.
local settled

-- The walk: waiting claims by ticket, while they fit. `asker` hears of its turn by the answer.
local function admit(asker, in_hand)
  local pushed, hinted
  -- Whoever left would have told the next in line: someone looks when grants begin.
  if resume and not granting and held < cap then look_later(asker) end
  while granting and moves > 0 and (held < cap or settled) and highest < HIGHEST do
    local heads = call('ZRANGEBYSCORE', Z, '1000000000000000', '+inf', 'LIMIT', '0', '2')
    local e, heir = heads[1] and known(heads[1]), heads[2] and known(heads[2])
    if not heads[1] then return end
    local told, outcome
    if e then told, outcome = done_before(e.keep, e.rerun) end
    if not e then
      moves = moves - 1
    elseif e.fence ~= '0' then
      moves = moves - 1
      call('ZREM', Z, heads[1])
    elseif e.til <= now then
      moves = moves - 1
      drop(e)
    elseif heir and heir.til <= now then
      moves = moves - 1
      drop(heir)
    elseif e.id ~= asker and away > 0 and call('HGET', K, '!' .. e.process) then
      moves = moves - 1
      aside(e)
    elseif told then
      if told == 'S' then
        tell_end(e, 'S ' .. e.id .. #K .. ' ' .. K .. outcome)
      else
        -- It may ask again, so its id stays a secret.
        moves = moves - 1
        drop(e)
        say(e, 'A ' .. partition .. ' ' .. e.ticket)
      end
    elseif e.weight > cap then
      tell_end(e, 'C ' .. e.id .. #K .. ' ' .. K .. cap)
    elseif e.weight > cap - held then
      if e.id == asker or not is_missing(e) then break end
      moves = moves - 1
      unreachable(e.process)
      aside(e)
    elseif e.id == asker then
      moves = moves - 1
      grant(e, number(e.ticket), in_hand and e.ttl or math.min(e.ttl, FIRST_LIFE), in_hand)
    else
      moves = moves - 1
      local comes_next = heir and heir.weight > cap - held - e.weight
      local heard, together = push(e, comes_next and heir)
      if heard then
        pushed, hinted = e.process, together
      elseif mute then
        return
      elseif just_up() then
        return look_later(asker)
      else
        unreachable(e.process)
        aside(e)
      end
    end
  end
  if pushed then tell_when_to_look(pushed, hinted) end
end

local function waiting()
  return call('ZCOUNT', Z, '1000000000000000', '+inf') + call('ZCOUNT', Z, '-inf', '(0')
end

-- Keeps the totals, and lets the name go when nobody needs it.
local function save()
  if alone then return end
  local used = held > 0 or waiting() > 0
  if not used and memory <= now then
    call('DEL', K, Z)
    return
  end
  if held > 0 then
    need = math.max(need, memory)
  else
    need = math.max(memory, used and now + PLACE_LIFE or 0)
  end
  local extend = expiry < need + 5000 or held == 0
  if extend then expiry = need + (used and 50000 or 0) end
  local text = table.concat({ cap, int(resized), held, int(memory), away, int(expiry) }, ' ')
  text = text .. ' ' .. (whole and whole.text .. ' ' .. whole.id or int(top))
  if text ~= totals then call('HSET', K, '#', text) end
  if extend then call('PEXPIRE', K, int(expiry - now)) end
  if extend or not was_lined then call('PEXPIRE', Z, int(expiry - now)) end
end

-- Who holds, or the one that ends first of those; and the time, to count from.
local function holder()
  local e = alone or first_end()
  if not e then return '', '', now end
  return claim_text(e), hold_text(e), now
end

totals = redis.pcall('HGET', K, '#')
if type(totals) == 'table' then
  if not totals.err:find('WRONGTYPE', 1, true) then return totals end
  local plain = call('GET', K)
  local c, process, w, f, ttl, since, fence, at =
    plain:match('^(%d+) (%x+) (%d+) (%d) (%d+) (%d+) (%d+) ()', 17)
  if not c then return redis.error_reply('FOREIGN the key of this name is not ours') end
  local til = now + call('PTTL', K)
  since = tonumber(since)
  cap, top = tonumber(c), tonumber(fence)
  alone = { id = plain:sub(1, 16), ticket = int(tonumber(fence) - 1), weight = tonumber(w),
    fixed = f, ttl = tonumber(ttl), process = process, keep = -1, rerun = '0',
    since = since > 0 and since or til - ttl, til = til, fence = fence, first = '0',
    details = plain:sub(at) }
elseif totals then
  lined = call('ZCARD', Z) > 0
  was_lined = lined
  local c, r, h, m, a, x, at = totals:match('^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)()')
  cap, resized, held, memory, away, expiry =
    tonumber(c), tonumber(r), tonumber(h), tonumber(m), tonumber(a), tonumber(x)
  if #totals - at > 17 then
    local id = totals:sub(-16)
    local til, fence = totals:match('^ (%d+) (%d+)', at)
    whole = { id = id, til = tonumber(til), text = totals:sub(at + 1, -18) }
    top = tonumber(fence)
  else
    top = tonumber(totals:sub(at + 1)) or 0
  end
end
if not totals then
  local orphans = redis.pcall('ZCARD', Z)
  if type(orphans) == 'table' or call('PTTL', K) ~= -2 then
    return redis.error_reply('FOREIGN the key of this name is not ours')
  end
  -- A line without its name is what an eviction has left.
  if orphans > 0 then call('DEL', Z) end
end
-- A renewal in a cluster does without the partition, whose key may move before or after the name's.
if not P then granting = false end
if P and flags:find('[fs]') then
  local at = tonumber(call('HGET', P, 'at') or 0)
  if now - at < SETTLING then granting, resume = false, at + SETTLING end
end
if P and flags:find('n', 1, true) then
  local not_before = call('HGET', P, 'nb')
  if not not_before then
    not_before = int(now + longest)
    call('HSET', P, 'nb', not_before)
  end
  if now < tonumber(not_before) then granting, resume = false, tonumber(not_before) end
end
