-- An operator ends the hold with this fence.
-- KEYS: name, line, partition
-- ARGV: 1 terms, 2 fence, 3 by .. '\n' .. reason
local wrong = ready()
if wrong then return wrong end
unfold()
call('HDEL', K, '~')
expire()
local members = call('ZRANGEBYSCORE', Z, '0', '(100000000000000')
if whole then members[#members + 1] = 'h' .. whole.id end
for _, member in ipairs(members) do
  local e = known(member)
  if e and e.fence == ARGV[2] then
    drop(e)
    -- Its holder may ask once more before its own deadline, and must be told "broken", not "expired".
    local til = math.max(e.til, now + e.ttl)
    remember(e.id, int(til) .. ' B ' .. ARGV[3], til)
    say(e, 'E B ' .. e.id .. #K .. ' ' .. K .. ARGV[3])
    admit()
    save()
    return { more('D') }
  end
end
admit()
save()
return { more('M') }
