-- The hold that ends first: when, and its id.
local function first_end()
  local id, til
  if has_parts() then
    id, til = unpack(call('ZRANGEBYSCORE', Z, '0', '(100000000000000', 'WITHSCORES', 'LIMIT', '0', '1'))
  end
  til = tonumber(til)
  if whole and not (til and til < whole.til) then return whole.til, whole.id end
  return til, id and id:sub(2)
end

-- Grants the claim its turn by a push, for a first life. If `next`, the next claim in line, is in the same
-- process, the push also tells it when to look.
local function push(e, next)
  local fence = number(e.ticket)
  local life = math.min(e.ttl, FIRST_LIFE)
  local text = table.concat({ 'G', partition, e.ticket, fence, int(life),
    life < e.ttl and 1 or 0 }, ' ')
  local together = next and next.process == e.process
  if together then
    local first = first_end()
    local ends = first and first - now or life
    text = table.concat({ text, next.ticket, int(math.max(0, math.min(life, ends))) }, ' ')
  end
  if not say(e, text) then return false end
  grant(e, fence, life)
  return true, together
end

-- Right after a server has come up nobody has subscribed yet: for a second no claim is set aside.
local function just_up()
  local up = tonumber(call('HGET', P, 'at') or 0)
  if now - up < 1000 then
    resume = up + 1000
    return true
  end
end

-- Nothing can be granted for now. Tells one claim that can be reached to look when that is over; the others
-- will ask when they have reconnected.
local function look_later(asker)
  local line = call('ZRANGEBYSCORE', Z, '1000000000000000', '+inf', 'LIMIT', '0', '64')
  for _, member in ipairs(line) do
    local e = known(member)
    local text = e and 'L ' .. partition .. ' ' .. e.ticket .. ' ' .. int(math.max(0, resume - now))
    if text and (e.id == asker or say(e, text)) then return end
  end
end

-- Whether the process of a claim that holds up the asking one cannot be reached. Nobody pushes a turn to
-- that claim, so nobody else would find out.
local function is_missing(e)
  if not asks or there == e.id then return false end
  if say(e, 'P') then
    there = e.id
    return false
  end
  return not mute and not just_up()
end

-- The hold that ends in this step was so short that the others were told recently.
local brief

-- A turn was pushed to `process`. If it is not taken, someone must look when it runs out: the next in line
-- (`hinted`: it has been told), and others in case the next does not react either: one claim of each
-- process among the first eight, and the last of 64. These are told at most once a second. `next_up` is the
-- next in line, if that is known, or false if nobody is.
local function tell_when_to_look(process, hinted, next_up)
  if brief and hinted then return end
  local line = brief and next_up ~= nil and { next_up or nil }
    or call('ZRANGEBYSCORE', Z, '1000000000000000', '+inf', 'LIMIT', '0', brief and '1' or '64')
  if not line[1] then return end
  local after = math.max(0, (first_end() or now) - now)
  local told, later = {}, 0
  for at, member in ipairs(line) do
    local to, ticket = member:sub(18, 33), member:sub(34, 49)
    if (at <= 8 or at == #line) and not told[to] and member:sub(50, 62) - now > 0 then
      if later > 0 or not hinted then
        say({ process = to }, 'L ' .. partition .. ' ' .. ticket .. ' ' .. int(after + later))
      end
      told[to], told[process], later = true, true, later + 25
    end
  end
end

-- This step has settled a once. Everyone who waits for it is told, even while a pushed turn is not taken yet.
local settled

-- The walk: admits waiting claims by ticket while they fit. `asker` learns of its turn from the answer.
local function admit(asker, in_hand)
  local pushed, hinted, next_up
  -- Nothing is granted now, so no leave would tell the next in line: let someone look when grants begin.
  if resume and not granting and held < cap then look_later(asker) end
  while granting and moves > 0 and (held < cap or settled) and highest < HIGHEST do
    local heads = call('ZRANGEBYSCORE', Z, '1000000000000000', '+inf', 'LIMIT', '0', '2')
    if not heads[1] then return end
    local e, next = in_line(heads[1]), heads[2] and in_line(heads[2])
    next_up = nil
    local told, outcome
    if e then told, outcome = done_before(e.keep, e.rerun) end
    if not e then
      moves = moves - 1
    elseif e.fence ~= '0' then
      moves = moves - 1
      call('ZREM', Z, heads[1])
    elseif e.til <= now then
      moves = moves - 1
      drop(e)
    elseif next and next.til <= now then
      moves = moves - 1
      drop(next)
    elseif e.id ~= asker and away > 0 and call('HGET', K, '!' .. e.process) then
      moves = moves - 1
      aside(e)
    elseif told then
      if told == 'S' then
        tell_end(e, 'S ' .. e.id .. #K .. ' ' .. K .. outcome)
      else
        -- The claim may ask again, so its id must stay secret.
        moves = moves - 1
        drop(e)
        say(e, 'A ' .. partition .. ' ' .. e.ticket)
      end
    elseif e.weight > cap then
      tell_end(e, 'C ' .. e.id .. #K .. ' ' .. K .. cap)
    elseif e.weight > cap - held then
      if e.id == asker or not is_missing(e) then break end
      moves = moves - 1
      unreachable(e.process)
      aside(e)
    elseif e.id == asker then
      moves = moves - 1
      grant(e, number(e.ticket), in_hand and e.ttl or math.min(e.ttl, FIRST_LIFE), in_hand)
    else
      moves = moves - 1
      local comes_next = next and next.weight > cap - held - e.weight
      local heard, together = push(e, comes_next and next)
      if heard then
        pushed, hinted, next_up = e.process, together, heads[2] or false
      elseif mute then
        return
      elseif just_up() then
        return look_later(asker)
      else
        unreachable(e.process)
        aside(e)
      end
    end
  end
  if pushed then tell_when_to_look(pushed, hinted, next_up) end
end

local function waiting()
  return call('ZCOUNT', Z, '1000000000000000', '+inf') + call('ZCOUNT', Z, '-inf', '(0')
end

-- Saves the totals, and deletes the name when nobody needs it.
local function save()
  if alone then return end
  local used = held > 0 or waiting() > 0
  if not used and memory <= now then
    call('DEL', K, Z)
    return
  end
  if held > 0 then
    need = math.max(need, memory)
  else
    need = math.max(memory, used and now + PLACE_LIFE or 0)
  end
  local extend = expiry < need + 5000 or held == 0
  if extend then expiry = need + (used and 50000 or 0) end
  local text = table.concat({ cap, int(resized), held, int(memory), away, int(expiry) }, ' ')
  text = text .. ' ' .. (whole and whole.text .. ' ' .. whole.id or int(top))
  if text ~= totals then call('HSET', K, '#', text) end
  if extend then call('PEXPIRE', K, int(expiry - now)) end
  if extend or not was_lined then call('PEXPIRE', Z, int(expiry - now)) end
end

-- The hold that ends first with its claim, and the current time, which its end is relative to.
local function holder()
  local e = alone
  if not e then
    local _, id = first_end()
    local text = whole and whole.id == id and call('HGET', K, id)
    if text then return text, whole.text, now end
    e = id and find(id)
  end
  if not e then return '', '', now end
  return claim_text(e), hold_text(e), now
end

totals = redis.pcall('HGET', K, '#')
if type(totals) == 'table' then
  if not totals.err:find('WRONGTYPE', 1, true) then return totals end
  local plain = call('GET', K)
  local c, process, w, f, ttl, since, fence, at =
    plain:match('^(%d+) (%x+) (%d+) (%d) (%d+) (%d+) (%d+) ()', 17)
  if not c then return redis.error_reply('FOREIGN the key of this name is not ours') end
  local til = now + call('PTTL', K)
  since = tonumber(since)
  cap, top = tonumber(c), tonumber(fence)
  alone = { id = plain:sub(1, 16), ticket = int(tonumber(fence) - 1), weight = tonumber(w),
    fixed = f, ttl = tonumber(ttl), process = process, keep = -1, rerun = '0',
    since = since > 0 and since or til - ttl, til = til, fence = fence, first = '0',
    details = plain:sub(at) }
elseif totals then
  lined = call('ZCARD', Z) > 0
  was_lined = lined
  local c, r, h, m, a, x, at = totals:match('^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)()')
  cap, resized, held, memory, away, expiry =
    tonumber(c), tonumber(r), tonumber(h), tonumber(m), tonumber(a), tonumber(x)
  if #totals - at > 17 then
    local id = totals:sub(-16)
    local til, fence = totals:match('^ (%d+) (%d+)', at)
    whole = { id = id, til = tonumber(til), text = totals:sub(at + 1, -18) }
    top = tonumber(fence)
  else
    top = tonumber(totals:sub(at + 1)) or 0
  end
end
if not totals then
  local orphans = redis.pcall('ZCARD', Z)
  if type(orphans) == 'table' or call('PTTL', K) ~= -2 then
    return redis.error_reply('FOREIGN the key of this name is not ours')
  end
  -- A line without its name is the leftover of an eviction.
  if orphans > 0 then call('DEL', Z) end
end
-- A renewal in a cluster does not use the partition: its key may move before or after the name's.
if not P then granting = false end
if P and flags:find('[fs]') then
  local at = tonumber(call('HGET', P, 'at') or 0)
  if now - at < SETTLING then granting, resume = false, at + SETTLING end
end
if P and flags:find('n', 1, true) then
  local not_before = call('HGET', P, 'nb')
  if not not_before then
    not_before = int(now + longest)
    call('HSET', P, 'nb', not_before)
  end
  if now < tonumber(not_before) then granting, resume = false, tonumber(not_before) end
end
