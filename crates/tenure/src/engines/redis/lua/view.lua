-- The name as it is. It only reads.
-- KEYS: name
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local plain = redis.pcall('GET', KEYS[1])
if not plain then return {} end
if type(plain) == 'string' then return { now, redis.call('PTTL', KEYS[1]), plain } end
return { now, redis.call('HGETALL', KEYS[1]) }
