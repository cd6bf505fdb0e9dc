local id, in_doubt, only, settles = ARGV[3], ARGV[4] == 'd', ARGV[5] or '', ARGV[6] or ''
unfold()
call('HDEL', K, '~')
expire()
local e = find(id)
if e and e.til <= now then
  drop(e)
  e = nil
end
if only ~= '' and not (e and e.fence == only) then
  admit()
  save()
  return gone(id)
end
-- While it still holds: its record may be older than `keep`, and counts for as long as that.
if settles ~= '' then
  local fence, keep, outcome, content = record()
  if fence == settles and not outcome then
    if ARGV[7] == 'o' then set_record(fence, keep, content, ARGV[8]) else call('HDEL', K, '#r') end
  end
end
local answer = e and { e.fence ~= '0' and 'R' or 'Q' } or gone(id)
if e then drop(e) end
if in_doubt then
  remember(id, int(now + 60000) .. ' T ', now + 60000)
end
admit()
save()
if moves == 0 then answer[1] = answer[1]:sub(1, 1) .. '+' end
return answer
