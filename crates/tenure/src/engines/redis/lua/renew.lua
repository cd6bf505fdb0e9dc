call('HDEL', K, '~')
expire()
local e = find(ARGV[2])
local answer
if e and e.fence ~= '0' and e.fence == ARGV[3] and e.til > now then
  -- For no time at all, someone only asks.
  if ARGV[4] ~= '0' then
    e.til, e.first = math.max(e.til, now + ARGV[4]), '0'
    put(e, true)
    reach(e.process)
  end
  answer = { 'G', e.fence, e.til - now, e.first }
end
admit()
save()
answer = answer or gone(ARGV[2])
if moves == 0 then answer[1] = answer[1]:sub(1, 1) .. '+' end
return answer
