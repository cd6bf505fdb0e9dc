-- KEYS: owner, line. ARGV: id, ttl. The next in line owns it from here on, and its process is told.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local next = redis.call('LPOP', KEYS[2])
if not next then return redis.call('DEL', KEYS[1]) end
redis.call('SET', KEYS[1], next, 'PX', ARGV[2])
redis.call('PUBLISH', string.sub(next, 1, 16), next)
return 1
