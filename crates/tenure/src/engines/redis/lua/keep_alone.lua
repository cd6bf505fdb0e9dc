-- A hold is renewed for the claim of its process that has it now: its fence and its details become those of the hold,
-- and the process is given fences for its next claims. Never creates a hold, never shortens one. Sent twice, it changes
-- nothing the second time, except that more fences are given.
-- KEYS: name, line [, partition]
-- ARGV: 1 terms, 2 id of the claim that was granted, 3 fence, 4 ttl, 0 if it is not to be extended, 5 how many fences, at
-- most, 6 the highest number seen, 7 details
-- Returns 'K', how long it lasts, 1 if that is a first life, how many wait, and the first and the last of the fences.
local plain = redis.pcall('GET', KEYS[1])
if not plain then return { 'X' } end
if type(plain) == 'string' then
  local head, ttl, since, held, details =
    plain:match('^(%d+ %x+ %d+ %d (%d+)) (%d+) (%d+) (.*)$', 17)
  if not head then return redis.error_reply('FOREIGN the key of this name is not ours') end
  if plain:sub(1, 16) ~= ARGV[2] then return { 'X' } end
  local given = KEYS[3] and redis.pcall('HGET', KEYS[3], 'n')
  given = type(given) == 'string' and tonumber(given) or 0
  -- If the server has lost its numbers, the full rule raises them.
  if given > 1000000000000000 and given >= tonumber(ARGV[6]) and given >= tonumber(held) then
    local fence = tonumber(ARGV[3])
    if fence < tonumber(held) or fence > given then return { 'X' } end
    local left = redis.call('PTTL', KEYS[1])
    if left < 1 then return { 'X' } end
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    since = tonumber(since)
    if fence ~= tonumber(held) then
      since, details = now, ARGV[7]
    elseif since == 0 then
      since = now + left - ttl
    end
    local life = ARGV[4] == '0' and left or math.max(left, tonumber(ARGV[4]))
    -- A write that a full server does not refuse: after it, the server refuses none of the writes that follow.
    redis.call('HDEL', KEYS[3], '~')
    redis.call('SET', KEYS[1], ARGV[2] .. table.concat(
      { head, string.format('%d', since), ARGV[3], details }, ' '), 'PX', string.format('%d', life))
    -- The numbers between the counter and the clock. A server that has lost its memory continues above the clock.
    local most = math.min(given + ARGV[5], time[1] * 1000000 + time[2], 9007199254740989)
    if most > given and type(redis.pcall('HSET', KEYS[3], 'n', string.format('%d', most))) == 'number' then
      return { 'K', life, 0, 0, given + 1, most }
    end
    return { 'K', life, 0, 0, 1, 0 }
  end
end
