-- A write that a full server does not refuse: after it, the server refuses none of the writes that follow.
redis.pcall('HDEL', alone and P or K, '~')
local wrong = ready(tonumber(ARGV[6]))
if wrong then return wrong end
unfold()
expire()
local e, fence, ttl = find(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local answer
-- Without the partition, the highest number is not known.
if e and e.fence ~= '0' and e.keep < 0 and e.til > now and fence >= tonumber(e.fence)
  and (not P or fence <= highest) then
  local is_next = fence ~= tonumber(e.fence)
  if is_next then
    e.fence, e.since, e.details = ARGV[3], now, ARGV[7]
    top = math.max(top, fence)
  end
  if ttl > 0 then
    e.til, e.first = math.max(e.til, now + ttl), '0'
    if not on_behalf(e) then reach(e.process) end
  end
  put(e, not is_next)
  local first, most = 1, P and math.min(highest + ARGV[5], wall, HIGHEST - 2) or 0
  -- Whoever is given a number after this is given a higher one.
  if P and most > highest then
    first, highest = highest + 1, most
    call('HSET', P, 'n', int(most))
  else
    most = 0
  end
  answer = { 'K', e.til - now, tonumber(e.first), waiting(), first, most }
end
admit()
save()
answer = answer or gone(ARGV[2])
answer[1] = more(answer[1]:sub(1, 1))
return answer
