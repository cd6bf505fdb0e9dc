-- Nobody in particular asks: the step before stopped at its bound.
-- KEYS: name, line, numbers, memory
-- ARGV: the last four
if alone then return { 'D' } end
call('HDEL', K, '~')
expire()
admit()
save()
return { more('D') }
