-- Forgets the record of a once, if it is still the one that the operator has seen and nobody holds the
-- once.
-- KEYS: name, line, partition
-- ARGV: 1 terms, 2 fence, 3 'o' if it was settled
local wrong = ready()
if wrong then return wrong end
unfold()
call('HDEL', K, '~')
expire()
local fence, _, outcome = record()
local code = 'M'
if held == 0 and fence == ARGV[2] and (outcome and 'o' or '') == ARGV[3] then
  call('HDEL', K, '#r')
  -- The name is no longer kept for the sake of this record.
  if call('ZCOUNT', Z, '200000000000000', '(300000000000000') == 0 then memory = resized end
  code = 'D'
end
admit()
save()
return { more(code) }
