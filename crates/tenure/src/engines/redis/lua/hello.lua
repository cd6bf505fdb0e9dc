-- Once for each connection and partition: has this server lost its memory, or is it another one?
-- KEYS: numbers, memory
-- ARGV: 1 run id, 2 longest ttl if nothing may be granted before all earlier holds have ended
local known = redis.call('HGET', KEYS[2], 'run')
local before = redis.call('HGET', KEYS[2], 'nb')
if known == ARGV[1] and (before or ARGV[2] == '') then return 0 end
local time = redis.call('TIME')
local wall = string.format('%.0f', time[1] * 1000000 + time[2])
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if tonumber(redis.call('GET', KEYS[1]) or 0) < tonumber(wall) then
  redis.call('SET', KEYS[1], wall)
end
if known ~= ARGV[1] then
  redis.call('HSET', KEYS[2], 'run', ARGV[1], 'at', string.format('%.0f', now))
  redis.call('HDEL', KEYS[2], 'nb')
end
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[2], 'nb', string.format('%.0f', now + ARGV[2]))
end
return 1
