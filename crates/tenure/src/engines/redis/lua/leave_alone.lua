-- A claim leaves, and the next ones are served.
-- KEYS: name [, line, numbers, memory]
-- ARGV: 1 'q' if it may be alone, 'h' if the name has a line as far as we know, 2 id, 3 'd' if in
-- doubt, 4 only this fence, 5 fence that settles, 6 'o' if with an outcome, 7 outcome, and then the
-- last four
local in_doubt = ARGV[3] == 'd'
if ARGV[1] == 'q' then
  local plain = redis.pcall('GET', KEYS[1])
  if type(plain) == 'string' then
    if plain:sub(1, 16) == ARGV[2]
      and (ARGV[4] == '' or plain:match('^%d+ %d+ %d %d+ %x+ %d+ (%d+) ', 17) == ARGV[4]) then
      if not in_doubt then
        redis.call('DEL', KEYS[1])
        return 1
      end
    elseif not in_doubt or ARGV[4] ~= '' then
      return { 'X' }
    end
  elseif not plain and (not in_doubt or ARGV[4] ~= '') then
    return { 'X' }
  end
end
if #KEYS == 1 then return { 'K' } end
if ARGV[1] == 'h' and not in_doubt and ARGV[4] == '' and ARGV[5] == ''
  and not ARGV[#ARGV - 3]:find('n', 1, true) then
  -- One holds the whole of it, and nothing else is to be seen to: to the first in line.
  local call = redis.call
  local found = redis.pcall('HMGET', KEYS[1], '#', ARGV[2])
  local cap = found[1] and found[1]:match('^(%d+) 0 %1 0 0$')
  local weight, til = (found[2] or ''):match('^%x+ %d+ (%d+) %d %d+ %-?%d+ %d %d+ (%d+) [1-9]')
  if cap and weight == cap then
    local time = call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local line = call('ZRANGEBYSCORE', KEYS[2], '1000000000000000', '+inf', 'WITHSCORES', 'LIMIT',
      0, 2)
    local id = line[1] and line[1]:sub(2, 17)
    local head = id and call('HGET', KEYS[1], id) or ''
    local process, ticket, what, ttl, ends, at =
      head:match('^(%x+) (%d+) (' .. cap .. ' %d (%d+) %-1 0) %d+ (%d+) 0 0 ()')
    if ends and tonumber(ends) > now and tonumber(til) > now then
      local fence = string.format('%.0f', call('INCR', KEYS[3]))
      local life = math.min(tonumber(ttl), 2000)
      local first = life < tonumber(ttl) and 1 or 0
      local text = table.concat({ 'G', ARGV[#ARGV - 1], ticket, fence, life, first }, ' ')
      -- Who comes next is told when that runs out: the one before may not take its turn.
      local heir = line[3] and line[3]:sub(18)
      if heir == process then text = table.concat({ text, line[4], life }, ' ') end
      local publish = ARGV[#ARGV - 3] == 's' and 'SPUBLISH' or 'PUBLISH'
      if call(publish, ARGV[#ARGV - 2] .. process, text) > 0 then
        call('HDEL', KEYS[1], ARGV[2])
        call('HSET', KEYS[1], id, table.concat({ process, ticket, what,
          string.format('%.0f %.0f', now, now + life), fence, first, head:sub(at) }, ' '))
        call('ZREM', KEYS[2], 'h' .. ARGV[2], line[1], 'p' .. id)
        call('ZADD', KEYS[2], string.format('%.0f', now + life), 'h' .. id)
        if call('PTTL', KEYS[1]) < life then
          call('PEXPIRE', KEYS[1], 110000)
          call('PEXPIRE', KEYS[2], 110000)
        end
        if heir and heir ~= process then
          call(publish, ARGV[#ARGV - 2] .. heir,
            table.concat({ 'L', ARGV[#ARGV - 1], line[4], life }, ' '))
        end
        return 1
      end
    end
  end
end
