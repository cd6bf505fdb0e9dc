-- A hold wants to last its ttl from now. Never creates one, never shortens one.
-- KEYS: name [, line, numbers, memory]
-- ARGV: 1 id, 2 fence, 3 ttl, and then the last four
local plain = redis.pcall('GET', KEYS[1])
if not plain then return { 'X' } end
if type(plain) == 'string' then
  local head, ttl, process, since, fence, rest =
    plain:match('^(%d+ %d+ %d) (%d+) (%x+) (%d+) (%d+) (.*)$', 17)
  if not head then return redis.error_reply('FOREIGN the key of this name is not ours') end
  if plain:sub(1, 16) ~= ARGV[1] or fence ~= ARGV[2] then return { 'X' } end
  local left = redis.call('PTTL', KEYS[1])
  if left < 1 then return { 'X' } end
  local life = math.max(left, tonumber(ARGV[3]))
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life))
  if since == '0' then
    -- Until now its beginning was its end less its ttl.
    local time = redis.call('TIME')
    since = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + left - ttl)
    redis.call('SET', KEYS[1], plain:sub(1, 16) ..
      table.concat({ head, ttl, process, since, fence, rest }, ' '), 'KEEPTTL')
  end
  return { 'G', fence, life, 0 }
end
if #KEYS == 1 then return { 'K' } end
