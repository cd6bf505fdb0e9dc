local id, how, only, settles = ARGV[3], ARGV[4] or '', ARGV[5] or '', ARGV[6] or ''
local in_doubt, unbegun = how:find('d', 1, true), how:find('u', 1, true)
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
if settles == '' and unbegun and e then settles = e.fence end
if settles ~= '' then
  local fence, keep, outcome, content, doubt = record()
  if fence == settles and not outcome then
    if ARGV[7] == 'o' then
      set_record(fence, keep, content, doubt, ARGV[8])
    elseif not doubt then
      call('HDEL', K, '#r')
    end
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
