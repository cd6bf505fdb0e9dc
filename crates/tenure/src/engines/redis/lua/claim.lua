local id, may_wait, in_hand = ARGV[3]:sub(1, 16), flags:find('w', 1, true), flags:find('h', 1, true)
local capacity, process, weight, is_fixed = ARGV[3]:match('^(%d+) (%x+) (%d+) (%d) %d+$', 17)
local more_terms = ARGV[7] or '4294967295  -1 0'
local most, ticket, keep, rerun = more_terms:match('^(%d+) (%d*) (-?%d+) (%x+)$')
local ttl = tonumber(ARGV[4])
capacity, weight = tonumber(capacity), tonumber(weight)
most, keep = tonumber(most), tonumber(keep)

if traced(id) == 'T' then return { 'L' } end
if alone and alone.til > now then
  local moves_on = alone.id == id and on_behalf(alone) and alone.process ~= process
  if alone.id == id and not moves_on then return { 'G', alone.fence, alone.til - now, 0 } end
  -- What can be refused at once is refused without a write.
  if not moves_on and (capacity ~= cap or weight > cap) then return { 'C', cap } end
  if not moves_on and weight > cap - alone.weight and not may_wait then return { 'B', holder() } end
end
local wrong = ready(math.max(tonumber(ARGV[6]), ticket ~= '' and tonumber(ticket) or 0))
if wrong then return wrong end
-- A group has taken this ticket for a claim that is new all the same.
local reserved = ARGV[2] == 'q' and ticket ~= '' and ticket
if reserved then ticket = '' end
unfold()
expire(true)
reach(process)

local function granted(e)
  save()
  return { more('G'), e.fence, e.til - now, e.first }
end

local function refused(code, ...)
  if ticket ~= '' then admit() end
  save()
  return { more(code), ... }
end

local e = find(id)
-- A claim that is made on behalf of someone belongs to the process that asked last.
local moves_here = e and on_behalf(e) and e.process ~= process
if e and e.fence ~= '0' then
  if moves_here then
    e.process = process
    put(e)
  end
  local told, outcome
  if in_hand then told, outcome = take(e) end
  admit()
  if not told then return granted(e) end
  save()
  return { more(told), outcome }
end
if (last and last - 2 or highest) > HIGHEST - 2 then
  save()
  return redis.error_reply('NUMBERS there are no numbers left')
end
asks = true
local told, outcome = done_before(keep, rerun, true)
if told then
  if e then drop(e) end
  admit()
  save()
  return { more(told), outcome }
end
if e then
  call('ZREM', Z, 'w' .. spot(e), 'a' .. spot(e))
  e.til = now + PLACE_LIFE
  if moves_here then e.process = process end
  put(e)
else
  if ticket == '' then admit() end
  local used = held > 0 or waiting() > 0
  local is_resized = resized > now or used and resized > 0
  if not used and not is_resized then cap, resized = capacity, 0 end
  if weight > cap or cap ~= capacity and ((is_fixed == '1' or is_fixed == '3') or not is_resized) then
    return refused('C', cap)
  end
  local next_now = granting and weight <= cap - held
    and not call('ZRANGEBYSCORE', Z, '1000000000000000', '+inf', 'LIMIT', '0', '1')[1]
  if not next_now and not may_wait then
    if ticket ~= '' then admit() end
    save()
    return { more('B'), holder() }
  end
  if not next_now and ticket == '' and most < 4294967295 and waiting() >= most then
    return refused('F')
  end
  if ticket == '' then ticket = reserved or last and int(last - 1) or number() end
  e = { id = id, ticket = ticket, weight = weight, fixed = is_fixed, ttl = ttl, process = process,
    keep = keep, rerun = rerun, since = now, til = now + PLACE_LIFE, fence = '0', first = '0',
    details = ARGV[5] }
  add(e)
  if next_now then
    grant(e, last and int(last) or number(), in_hand and ttl or math.min(ttl, FIRST_LIFE), in_hand)
    return granted(e)
  end
end
admit(id, in_hand)
e = find(id)
if not e then
  save()
  return gone(id)
end
if e.fence ~= '0' then return granted(e) end
local before = call('ZCOUNT', Z, '1000000000000000', '(' .. e.ticket)
local first = first_end()
local look = first and first - now or resume and math.max(0, resume - now) or -1
-- For an hour after a user that may not publish was seen, someone may leave without a push: look often.
local mute_at = call('HGET', P, 'mute')
if mute_at and time[1] - mute_at < 3600 then look = look < 0 and 2000 or math.min(look, 2000) end
-- Enough units for it are free, but a claim before it needs more and holds it up.
local held_up = granting and before > 0 and e.weight <= cap - held and 1 or 0
save()
local claim, hold, at = holder()
return { more('W'), e.ticket, before, int(highest), look, claim, hold, at, held_up }
