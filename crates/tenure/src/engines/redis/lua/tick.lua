-- No claim asks: this continues a step that stopped at its limit.
-- KEYS: name, line, partition
-- ARGV: 1 terms
if alone then return { 'D' } end
local wrong = ready()
if wrong then return wrong end
call('HDEL', K, '~')
expire()
admit()
save()
return { more('D') }
