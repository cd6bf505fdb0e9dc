-- KEYS: owner, line. ARGV: id, ttl. 1: it is yours; 0: you stand in line.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
redis.call('RPUSH', KEYS[2], ARGV[1])
return 0
