-- Leaves and claims that were ready at the same moment, for names that, as far as the client knows, are in their plain form.
-- KEYS: the name of each leave; then for each partition its own key, followed by the names of its claims
-- ARGV: 1 the number of leaves; the id of each leave; then for each partition how many numbers its claims use (two
-- each) and the highest number seen, followed by three arguments for each claim: id .. "capacity process weight
-- fixed ttl", ttl, details
-- Returns one number for each leave: 1 if it has ended its hold; then one for each claim: its fence or, if the name is in
-- use, minus the ticket that was taken for it. 0 means that this step was not done and must be sent by itself.
-- An error must not stop the script, because the steps before it would then have no answer.
local KEYS, ARGV, pcall, format = KEYS, ARGV, redis.pcall, string.format
local answers, leaves = {}, tonumber(ARGV[1])
if leaves > 0 then
  local found, ended = pcall('MGET', unpack(KEYS, 1, leaves)), {}
  for at = 1, leaves do
    -- MGET returns nil for a name that is not in its plain form, as for one that nobody holds, so nil is no answer.
    local plain = found[at]
    if found.err then plain = pcall('GET', KEYS[at]) end
    answers[at] = 0
    if type(plain) == 'string' and plain:sub(1, 16) == ARGV[at + 1] then
      ended[#ended + 1] = KEYS[at]
      answers[at] = 1
    end
  end
  if ended[1] and type(pcall('DEL', unpack(ended))) ~= 'number' then
    for at = 1, leaves do answers[at] = 0 end
  end
end
local key, arg, at = leaves + 1, leaves + 2, leaves
while KEYS[key] do
  local count = tonumber(ARGV[arg])
  local last = pcall('HINCRBY', KEYS[key], 'n', ARGV[arg])
  local fence = type(last) == 'number' and last - count
  local counts = fence and fence > 1000000000000000 and fence >= tonumber(ARGV[arg + 1])
    and last <= 9007199254740991
  arg = arg + 2
  for _ = 2, count, 2 do
    key, at = key + 1, at + 1
    answers[at] = 0
    if counts then
      fence = fence + 2
      local stored = pcall('SET', KEYS[key], ARGV[arg] .. format(' 0 %d ', fence) .. ARGV[arg + 2],
        'NX', 'PX', ARGV[arg + 1])
      if not stored then
        answers[at] = 1 - fence
      elseif stored.ok then
        answers[at] = fence
      end
    end
    arg = arg + 3
  end
  key = key + 1
end
return answers
