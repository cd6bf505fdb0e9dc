-- KEYS: the lock. ARGV: the owner. Deletes it only if it is still the owner's.
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
