-- Marks a process as unreachable. The mark is removed when all places that it covers have ended.
local function unreachable(process)
  line_up()
  if call('HSET', K, '!' .. process, '1') == 1 then away = away + 1 end
  call('ZADD', Z, int(TRACES + now + PLACE_LIFE), '!' .. process)
end

-- The process was heard from: its claims that were set aside return to their places.
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

-- Publishes, and returns whether anyone received it. If this user may not publish, nobody does.
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

-- The claim of a member of the line. If the server has evicted the claim, the member is removed, too.
local function known(member)
  local e = find(member:sub(2, 17))
  if not e then call('ZREM', Z, member) end
  return e
end

-- The claim of a waiting member, as far as the member tells, which is all that a turn needs: a claim has many
-- more fields, and reading them all takes longer than the rest of the walk. Not for a once.
local function in_line(member)
  local id = member:sub(2, 17)
  local weight, ttl = member:match('^(%d+) (%d+)$', 63)
  if not weight or cache[id] then return known(member) end
  if not call('HGET', K, id) then return known(member) end
  return { in_line = true, id = id, process = member:sub(18, 33), ticket = member:sub(34, 49),
    til = tonumber(member:sub(50, 62)), weight = tonumber(weight), ttl = tonumber(ttl), keep = -1,
    rerun = '0', fence = '0' }
end

-- A hold from before this server took over may have been renewed on the old server. It lasts its ttl from
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

-- Every step ends the holds whose time is over. Places and traces are swept when someone joins; an expired
-- place at the head of the line is also found by the walk.
local function expire(sweep)
  -- Without the partition, a step cannot know whether the server has just taken over.
  if not P then return end
  if whole and whole.til <= now then
    local e = find(whole.id)
    moves = moves - 1
    if not e then
      held, whole = 0, nil
    elseif not goes_on(e) then
      drop(e)
      if not on_behalf(e) then unreachable(e.process) end
    end
  end
  for _, member in ipairs(has_parts() and ended(0, moves) or {}) do
    local e = known(member)
    moves = moves - 1
    if e and not goes_on(e) then
      drop(e)
      if not on_behalf(e) then unreachable(e.process) end
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

