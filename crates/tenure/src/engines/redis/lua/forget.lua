-- Someone has seen what is known of a once, and wants it to be forgotten: if it is still that, and nobody
-- is at it.
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
  -- The name need not be kept for its sake any more.
  if call('ZCOUNT', Z, '200000000000000', '(300000000000000') == 0 then memory = resized end
  code = 'D'
end
admit()
save()
return { more(code) }
