-- Runs a command unless its fence is lower than one that was seen, and remembers the fence.
local kept = redis.call('GET', KEYS[2])
local seen = tonumber(kept or '0')
if not seen then
  return redis.error_reply('ERR ' .. KEYS[2] .. ' holds something that is no fence')
end
if tonumber(ARGV[1]) < seen then
  return {0, kept}
end
if kept ~= ARGV[1] then
  redis.call('SET', KEYS[2], ARGV[1])
end
if #ARGV == 1 then
  return {1, false}
end
return {1, redis.call(unpack(ARGV, 2))}
