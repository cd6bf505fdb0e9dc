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

