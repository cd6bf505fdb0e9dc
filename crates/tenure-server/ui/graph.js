// Who waits for whom, across names: an owner that holds one name may wait for another. No DOM here.

/**
 * The trees of who waits, the owners that block most first, and the circles among them.
 * A node is `{ owner, name, kind, many, longest, circle, again, behind }`; a root has no `name`, but `blocks` and `holds`.
 */
export function blocked(entries, now) {
  const behind = waitingBehind(entries, now);
  const waits = new Set();
  for (const [holder, list] of behind) list.forEach((one) => one.owner !== holder && waits.add(one.owner));
  const circles = findCircles(behind);
  const inCircle = new Set(circles.flatMap((circle) => circle.map((step) => step.owner)));
  const roots = [...behind.keys()].map((owner) => ({ owner, blocks: blocks(behind, owner) }));
  roots.sort((a, b) => b.blocks - a.blocks || (a.owner < b.owner ? -1 : 1));
  const seen = new Set();
  const trees = [];
  // Start with owners that wait for nobody; what is left after that depends on circles.
  for (const waiting of [false, true]) {
    for (const root of roots) {
      if (waits.has(root.owner) !== waiting || seen.has(root.owner)) continue;
      const names = new Set(behind.get(root.owner).map((one) => one.key));
      trees.push({
        ...root,
        circle: inCircle.has(root.owner),
        holds: names.size,
        behind: walk(behind, root.owner, [root.owner], seen),
      });
    }
  }
  return { trees, circles };
}

/** For each owner, those who wait for what it holds, by owner, in the order of their first place. */
function waitingBehind(entries, now) {
  const behind = new Map();
  for (const entry of entries) {
    if (entry.waiters.length === 0) continue;
    const line = new Map();
    for (const { owner, since } of entry.waiters) {
      const one = line.get(owner) ?? { owner, name: entry.name, kind: entry.kind, key: entry.key, many: 0, longest: 0 };
      one.many += 1;
      one.longest = Math.max(one.longest, now - since);
      line.set(owner, one);
    }
    for (const holder of new Set(entry.holders.map((one) => one.owner))) {
      if (!behind.has(holder)) behind.set(holder, []);
      behind.get(holder).push(...line.values());
    }
  }
  return behind;
}

/** How many wait for an owner, directly or through others. */
function blocks(behind, owner) {
  const seen = new Set([owner]);
  const next = [owner];
  let many = 0;
  while (next.length > 0) {
    for (const one of behind.get(next.pop()) ?? []) {
      many += one.many;
      if (!seen.has(one.owner)) {
        seen.add(one.owner);
        next.push(one.owner);
      }
    }
  }
  return many;
}

function walk(behind, owner, path, seen) {
  seen.add(owner);
  return (behind.get(owner) ?? []).map((one) => {
    // Tasks of one process often want the same name; that is not a circle.
    const own = one.owner === owner;
    const circle = !own && path.includes(one.owner);
    const again = !own && !circle && behind.has(one.owner) && seen.has(one.owner);
    const deeper =
      own || circle || again || path.length > 50 ? [] : walk(behind, one.owner, [...path, one.owner], seen);
    return { ...one, circle, again, behind: deeper };
  });
}

/** Circles: each a list of `{ owner, name, kind }`, where each owner waits for the name, which the next owner holds. */
function findCircles(behind) {
  // From a waiter to those it waits for.
  const ahead = new Map();
  for (const [holder, list] of behind) {
    for (const { owner, name, kind } of list) {
      if (owner === holder) continue;
      if (!ahead.has(owner)) ahead.set(owner, []);
      ahead.get(owner).push({ owner, name, kind, holder });
    }
  }
  const circles = [];
  const done = new Set();
  for (const start of [...ahead.keys()].sort()) {
    if (done.has(start)) continue;
    const circle = shortestWayBack(ahead, start);
    if (circle && !circle.some((step) => done.has(step.owner))) {
      circle.forEach((step) => done.add(step.owner));
      circles.push(circle);
    }
  }
  return circles;
}

function shortestWayBack(ahead, start) {
  const came = new Map();
  const next = [start];
  while (next.length > 0) {
    const owner = next.shift();
    for (const step of ahead.get(owner) ?? []) {
      if (step.holder === start) {
        const way = [step];
        for (let at = owner; at !== start; at = came.get(at).owner) way.unshift(came.get(at));
        return way;
      }
      if (!came.has(step.holder)) {
        came.set(step.holder, step);
        next.push(step.holder);
      }
    }
  }
  return null;
}
