-- A claim leaves, and the next ones are served.
-- KEYS: name, line, partition
-- ARGV: 1 terms, 2 'q' if it may be alone, 'h' if others wait as far as we know, both only if none of 4 to
-- 8 is given; 3 id, 4 'd' if in doubt, 5 only this fence, or 'w' and the process that must have asked last for
-- a claim that waits, 6 fence that settles, 7 'o' if with an outcome, 8 outcome
if ARGV[2] == 'q' then
  local plain = redis.pcall('GET', KEYS[1])
  if type(plain) == 'string' then
    if plain:sub(1, 16) ~= ARGV[3] then return { 'X' } end
    redis.call('DEL', KEYS[1])
    return 1
  elseif not plain then
    return { 'X' }
  end
end
if ARGV[2] == 'h' then
  -- One claim holds the whole capacity and nothing else needs attention: hand over to the first in line.
  local call = redis.call
  local totals = redis.pcall('HGET', KEYS[1], '#')
  local cap, expiry, ends, held, since, at
  if type(totals) == 'string' then
    cap, expiry, ends, held, since, at =
      totals:match('^(%d+) 0 %1 0 0 (%d+) (%d+) (%d+) %d (%d+) ()')
  end
  if cap and totals:sub(at) == ARGV[3] then
    local time = call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local line = call('ZRANGEBYSCORE', KEYS[2], '1000000000000000', '+inf', 'LIMIT', '0', '3')
    local head = line[1] or ''
    local after = line[2] or head
    -- Once a second the full rule runs, which tells more claims than the next when to look.
    local next_only = not line[3] or math.floor(since / 1000) == math.floor(now / 1000)
    local asked, ttl = head:match('^(%d+) (%d+)$', 63)
    if asked == cap and head:sub(50, 62) - now > 0 and after:sub(50, 62) - now > 0
      and ends - now > 0 and next_only then
      local flags, channel, partition = ARGV[1]:match('^(%S+) (%S+) (%d+) ')
      local id, process, ticket = head:sub(2, 17), head:sub(18, 33), head:sub(34, 49)
      -- Above every number that the name has given and above the server's clock, even if the partition was lost.
      local given = redis.pcall('HGET', KEYS[3], 'n')
      local number = math.max(type(given) == 'string' and tonumber(given) or 0, tonumber(held),
        ticket + 1, time[1] * 1000000 + time[2] - 1) + 1
      local fence = string.format('%d', number)
      -- First find out what this user may not do; before 7.0 by trying, in a form that changes nothing.
      local may = redis.acl_check_cmd or function(...) return type(redis.pcall(...)) == 'number' end
      -- A server whose memory is full refuses the last of these; then the full rule runs.
      if type(given) == 'string' and given >= held and number <= 9007199254740991
        and may('HDEL', KEYS[1], '~') and may('ZREM', KEYS[2], '~')
        and type(redis.pcall('HSET', KEYS[3], 'n', fence)) == 'number' then
        local life = math.min(tonumber(ttl), 2000)
        local first = life < tonumber(ttl) and ' 1 ' or ' 0 '
        local text = 'G ' .. partition .. ' ' .. ticket .. ' ' .. fence .. ' ' .. life .. first
        -- The next in line is told when this turn runs out, in case it is not taken.
        local next_process = line[2] and line[2]:sub(18, 33)
        local hint = next_process and line[2]:sub(34, 49) .. ' ' .. life
        if next_process == process then text = text .. hint end
        local publish = flags == '-s' and 'SPUBLISH' or 'PUBLISH'
        -- Written before it is published, and undone if nobody has received it.
        call('HSET', KEYS[1], '#', cap .. ' 0 ' .. cap .. ' 0 0 ' .. expiry .. string.format(' %d ',
          now + life) .. fence .. first .. string.format('%d ', now) .. id)
        local heard = redis.pcall(publish, channel .. process, text)
        if type(heard) == 'number' and heard > 0 then
          call('HDEL', KEYS[1], ARGV[3])
          call('ZREM', KEYS[2], head, 'p' .. id)
          if next_process and next_process ~= process then
            redis.pcall(publish, channel .. next_process, 'L ' .. partition .. ' ' .. hint)
          end
          return 1
        end
        call('HSET', KEYS[1], '#', totals)
      end
    end
  end
end
