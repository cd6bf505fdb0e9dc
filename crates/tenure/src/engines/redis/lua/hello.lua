-- Sent once for each connection and partition: finds out whether this server lost its memory, or is another
-- one.
-- KEYS: partition
-- ARGV: 1 run id, 2 longest ttl if nothing may be granted before all earlier holds have ended, 3 PUBLISH or
-- SPUBLISH, 4 a channel
local P = KEYS[1]
local known = redis.call('HGET', P, 'run')
local before = redis.call('HGET', P, 'nb')
local highest = redis.call('HGET', P, 'n') or '0'
-- A write that a full server does not refuse: after it, the server refuses none of the writes that follow.
redis.call('HDEL', P, '~')
local time = redis.call('TIME')
local wall = string.format('%d', time[1] * 1000000 + time[2])
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- A user that may not publish tells waiting claims nothing, so they ask more often.
if type(redis.pcall(ARGV[3], ARGV[4], 'P')) ~= 'number' then
  redis.call('HSET', P, 'mute', time[1])
end
-- If another server kept this partition in the meantime, a client may not have seen the numbers given there.
if tonumber(highest) < tonumber(wall) then
  redis.call('HSET', P, 'n', wall)
  highest = wall
end
if known == ARGV[1] and (before or ARGV[2] == '0') then return 0 end
if known ~= ARGV[1] then
  redis.call('HSET', P, 'run', ARGV[1])
  -- Lines may have outlived the connections of the claims that wait, and the last renewals of holds with
  -- these numbers or lower ones may be missing.
  if known then redis.call('HSET', P, 'at', string.format('%d', now), 'old', highest) end
  redis.call('HDEL', P, 'nb')
end
if ARGV[2] ~= '0' then
  redis.call('HSET', P, 'nb', string.format('%d', now + ARGV[2]))
end
return 1
