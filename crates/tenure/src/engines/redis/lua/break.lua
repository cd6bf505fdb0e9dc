-- An operator ends the hold with this fence.
-- KEYS: name, line, numbers, memory
-- ARGV: 1 fence, 2 by .. '\n' .. reason, and then the last four
unfold()
call('HDEL', K, '~')
expire()
for _, member in ipairs(call('ZRANGEBYSCORE', Z, '0', '(100000000000000')) do
  local e = find(member:sub(2))
  if e.fence == ARGV[1] then
    drop(e)
    -- Its holder may ask once more before its own deadline, and must not hear "expired".
    local til = math.max(e.til, now + e.ttl)
    remember(e.id, int(til) .. ' B ' .. ARGV[2], til)
    say(e, 'E B ' .. e.id .. #K .. ' ' .. K .. ARGV[2])
    admit()
    save()
    return { more('D') }
  end
end
admit()
save()
return { more('M') }
