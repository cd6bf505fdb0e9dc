-- An operator changes the capacity. Refused while a claim has a fixed one.
-- KEYS: name, line, partition
-- ARGV: 1 terms, 2 capacity
local wrong = ready()
if wrong then return wrong end
unfold()
call('HDEL', K, '~')
expire(true)
local fixed
local fields = call('HGETALL', K)
for at = 1, #fields, 2 do
  fixed = fixed or #fields[at] == 16 and fields[at + 1]:match('^%x+ %d+ %d+ [13] ')
end
if fixed then
  admit()
  save()
  return { more('C') }
end
cap, resized = tonumber(ARGV[2]), now + 86400000
memory = math.max(memory, resized)
-- A head that can never fit would keep everyone behind it waiting for ever. Claims further back than the
-- limit of a step are found when they come to the head.
for _, range in ipairs({ { '1000000000000000', '+inf' }, { '-inf', '(0' } }) do
  for _, member in ipairs(call('ZRANGEBYSCORE', Z, range[1], range[2], 'LIMIT', '0', moves)) do
    local e = known(member)
    if e and e.weight > cap and moves > 0 then
      tell_end(e, 'C ' .. e.id .. #K .. ' ' .. K .. cap)
    end
  end
end
admit()
save()
return { more('D') }
