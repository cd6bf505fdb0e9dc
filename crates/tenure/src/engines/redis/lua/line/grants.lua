local function record()
  local text = call('HGET', K, '#r')
  if not text then return end
  local fence, keep, til, settled, content, at = text:match('^(%d+) (%d+) (%d+) (%d)(%x*) ()')
  if held > 0 or tonumber(til) > now then
    return fence, tonumber(keep), settled == '1' and text:sub(at), content, settled == '2'
  end
end

-- Settled is 0: not settled; 1: settled; 2: not settled, and neither was the run before it.
local function set_record(fence, keep, content, doubt, outcome)
  local til = now + keep
  call('HSET', K, '#r', table.concat(
    { fence, int(keep), int(til), (outcome and '1' or doubt and '2' or '0') .. content, outcome or '' }, ' '))
  memory = math.max(memory, til)
end

-- Whether a claim of a once no longer needs a turn, and what it is told. A claim that asks is also told,
-- while someone holds the once, that it was started with other content.
local function done_before(keep, rerun, asks)
  if keep < 0 then return end
  local fence, _, outcome, content = record()
  if not fence then return end
  local own = rerun:sub(2)
  local agrees = own == content or own == '' or content == ''
  if not agrees and (asks or held == 0) then return 'O' end
  if outcome then return 'S', outcome end
  if rerun:sub(1, 1) == '0' and held == 0 then return 'U' end
end

-- A once has begun if its owner is there to take the grant (`in_hand`). If the grant is only pushed, it
-- begins when the turn is taken, and an expired record must not count again while it is held.
local function grant(e, fence, life, in_hand)
  local place = 'w' .. spot(e)
  local before, _, outcome
  if e.keep >= 0 then before, _, outcome = record() end
  e.since, e.til, e.fence, e.first = now, now + life, fence, life < e.ttl and '1' or '0'
  held = held + e.weight
  top = math.max(top, tonumber(fence))
  if e.keep >= 0 and in_hand then
    set_record(fence, e.keep, e.rerun:sub(2), before and not outcome)
  elseif e.keep >= 0 and not before then
    call('HDEL', K, '#r')
  end
  put(e, true)
  -- Only now: a line that is empty for a moment would lose its expiry.
  call('ZREM', Z, place, 'p' .. e.id)
end

-- The owner of a hold takes it, so a once has begun, unless it was settled in the meantime. In that case
-- the hold ends, and the owner is told what is returned here.
local function take(e)
  if e.keep < 0 then return end
  local fence, _, outcome, content = record()
  if fence == e.fence then return end
  local own = e.rerun:sub(2)
  local told
  if fence and own ~= content and own ~= '' and content ~= '' then
    told = 'O'
  elseif outcome then
    told = 'S'
  end
  if told then
    drop(e)
    return told, outcome
  end
  set_record(e.fence, e.keep, own, fence)
end

-- Ends a claim that is not this step's own. From here on its id is no longer a secret.
local function tell_end(e, text)
  moves = moves - 1
  drop(e)
  say(e, 'E ' .. text)
end

