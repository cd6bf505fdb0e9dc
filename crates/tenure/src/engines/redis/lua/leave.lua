local id, how, only, settles = ARGV[3], ARGV[4] or '', ARGV[5] or '', ARGV[6] or ''
local in_doubt, unbegun = how:find('d', 1, true), how:find('u', 1, true)
local wrong = ready()
if wrong then return wrong end
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
-- Who says how it ended has begun it.
if ARGV[7] == 'o' and e and e.fence == settles and take(e) then e = nil end
if settles ~= '' then
  local fence, keep, outcome, content, doubt = record()
  if fence == settles and not outcome then
    if ARGV[7] == 'o' then
      set_record(fence, keep, content, doubt, ARGV[8])
      settled = true
    elseif not doubt then
      call('HDEL', K, '#r')
    end
  end
end
local answer = e and { e.fence ~= '0' and 'R' or 'Q' } or gone(id)
-- Of all holds that end without a pause between them, one a second does not lie within a second.
brief = e and e.fence ~= '0' and moves == 512 and math.floor(e.since / 1000) == math.floor(now / 1000)
if e then drop(e) end
if in_doubt then
  remember(id, int(now + 60000) .. ' T ', now + 60000)
end
admit()
save()
answer[1] = more(answer[1]:sub(1, 1))
return answer
