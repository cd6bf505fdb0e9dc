-- A claim leaves, and the next ones are served.
-- KEYS: name [, line, partition]
-- ARGV: 1 terms, 2 'q' if it may be alone, 'h' if others wait as far as we know, both without what
-- follows; 3 id, 4 'd' if in doubt, 5 only this fence, 6 fence that settles, 7 'o' if with an
-- outcome, 8 outcome
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
if #KEYS == 1 then return { 'K' } end
if ARGV[2] == 'h' then
  -- One holds the whole of it, and nothing else is to be seen to: to the first in line.
  local call = redis.call
  local found = redis.pcall('HMGET', KEYS[1], '#', 'f' .. ARGV[3])
  local cap = found[1] and found[1]:match('^(%d+) 0 %1 0 0$')
  local weight, til = (found[2] or ''):match('^(%d+) (%d+) ')
  if cap and weight == cap then
    local time = call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local line = call('ZRANGEBYSCORE', KEYS[2], '1000000000000000', '+inf', 'LIMIT', '0', '2')
    local head = line[1] or ''
    local id, process = head:sub(2, 17), head:sub(18, 33)
    local asked, ttl = head:match('^(%d+) (%d+)$', 50)
    local after = line[2] or head
    local ends = asked == cap and call('ZMSCORE', KEYS[2], 'p' .. id, 'p' .. after:sub(2, 17))
    if ends and ends[1] - 1e14 > now and ends[2] - 1e14 > now and tonumber(til) > now then
      local flags, channel, partition = ARGV[1]:match('^(%S+) (%S+) (%d+) ')
      local fence = string.format('%d', call('HINCRBY', KEYS[3], 'n', '1'))
      local life = math.min(tonumber(ttl), 2000)
      local first = life < tonumber(ttl) and ' 1' or ' 0'
      local text = 'G ' .. partition .. ' ' .. head:sub(34, 49) .. ' ' .. fence .. ' ' .. life .. first
      -- Who comes next is told when that runs out: the one before may not take its turn.
      local heir = line[2] and line[2]:sub(18, 33)
      local hint = heir and line[2]:sub(34, 49) .. ' ' .. life
      if heir == process then text = text .. ' ' .. hint end
      local publish = flags == '-s' and 'SPUBLISH' or 'PUBLISH'
      if call(publish, channel .. process, text) > 0 then
        call('HDEL', KEYS[1], ARGV[3], 'f' .. ARGV[3])
        local ended = string.format('%d', now + life)
        call('HSET', KEYS[1], 'f' .. id, cap .. ' ' .. ended .. ' ' .. fence .. first
          .. string.format(' %d', now))
        call('ZADD', KEYS[2], ended, 'h' .. id)
        call('ZREM', KEYS[2], 'h' .. ARGV[3], head, 'p' .. id)
        if heir and heir ~= process then
          call(publish, channel .. heir, 'L ' .. partition .. ' ' .. hint)
        end
        return 1
      end
    end
  end
end
