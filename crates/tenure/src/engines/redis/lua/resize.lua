-- An operator changes how many units there are; not while that is fixed for a claim.
-- KEYS: name, line, numbers, memory
-- ARGV: 1 capacity, and then the last four
unfold()
call('HDEL', K, '~')
expire()
local fixed
for _, text in ipairs(call('HVALS', K)) do
  fixed = fixed or text:match('^%x+ %d+ %d+ 1 ')
end
if fixed then
  admit()
  save()
  return { more('C') }
end
cap, resized = tonumber(ARGV[1]), now + 86400000
memory = math.max(memory, resized)
-- A head that can never fit would keep everyone behind it waiting for ever. Those further behind
-- are seen when they come to the head.
for _, member in ipairs(call('ZRANGEBYSCORE', Z, '1000000000000000', '+inf', 'LIMIT', 0, moves)) do
  local e = find(member:sub(2, 17))
  if e.weight > cap and moves > 0 then
    tell_end(e, 'C ' .. e.id .. #K .. ' ' .. K .. cap)
  end
end
admit()
save()
return { more('D') }
