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
local is_meant = only == '' or e and e.fence == only
  or e and e.fence == '0' and only == 'w' .. e.process
  -- A turn is given back only in its first life: otherwise an answer has brought it to its claim.
  or e and unbegun and e.first == '1' and only == e.fence .. 'p' .. e.process
if not is_meant then
  admit()
  save()
  return gone(id)
end
-- Do this before the hold ends: a record older than `keep` still counts while the name is held.
if settles == '' and unbegun and e then settles = e.fence end
-- A leave that reports an outcome proves that the once has begun.
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
-- Approximates "held for less than a second": among holds that follow each other without a pause, one per second
-- begins in one second and ends in the next.
brief = e and e.fence ~= '0' and moves == 512 and math.floor(e.since / 1000) == math.floor(now / 1000)
if e then drop(e) end
if in_doubt then
  remember(id, int(now + 60000) .. ' T ', now + 60000)
end
admit()
save()
answer[1] = more(answer[1]:sub(1, 1))
return answer
