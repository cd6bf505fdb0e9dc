local wrong = ready()
if wrong then return wrong end
call('HDEL', K, '~')
expire()
local e = find(ARGV[2])
local answer
if e and e.fence ~= '0' and e.fence == ARGV[3] and e.til > now then
  if ARGV[4] == '0' then
    -- A ttl of 0 only asks.
    answer = { 'G', e.fence, e.til - now, e.first }
  elseif take(e) then
    -- The claim itself must ask for the outcome of a once.
    answer = { 'X' }
  else
    e.til, e.first = math.max(e.til, now + ARGV[4]), '0'
    put(e, true)
    if not on_behalf(e) then reach(e.process) end
    answer = { 'G', e.fence, e.til - now, e.first }
  end
end
admit()
save()
answer = answer or gone(ARGV[2])
answer[1] = more(answer[1]:sub(1, 1))
return answer
