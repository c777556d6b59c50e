"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const words = (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Uint16Array(bytes.buffer);
  };
  const pairs = words(data.pairs), figures = words(data.figures);
  const nodes = data.names.length, count = pairs.length / 3, rails = data.rails.length;
  const FAILED = 65535, UNTRIED = 65534;
  const $ = (id) => document.getElementById(id);

  // What each node has in each round: the number of its pair.
  const rounds = data.rounds;
  const at = Array.from({ length: rounds }, () => new Int32Array(nodes).fill(-1));
  for (let pair = 0; pair < count; pair++) {
    const round = at[pairs[3 * pair]];
    if (round) { round[pairs[3 * pair + 1]] = pair; round[pairs[3 * pair + 2]] = pair; }
  }

  // Where each node was to meet each other one, a row of the map is a node. The last try of a pair counts.
  const isFull = data.full;
  const met = new Map();
  if (isFull) for (let pair = 0; pair < count; pair++) met.set(pairs[3 * pair + 1] * nodes + pairs[3 * pair + 2], pair);
  const cell = (row, node) => {
    if (!isFull) return at[row][node];
    const pair = met.get(Math.min(row, node) * nodes + Math.max(row, node));
    return pair === undefined ? -1 : pair;
  };

  // Which figure: 0 bandwidth, 1 latency. A rail of -1 is the worst of all.
  let figure = 0, rail = -1;
  const raw = (pair, of) => figures[(pair * rails + of) * 2 + figure];
  const worse = (a, b) => (figure === 0 ? Math.min(a, b) : Math.max(a, b));
  const better = (a, b) => (figure === 0 ? Math.max(a, b) : Math.min(a, b));
  // How good a value is: 1 is usual, less is worse, -1 has failed; null was not tried.
  const share = (value, of) => {
    if (value === UNTRIED) return null;
    if (value === FAILED) return -1;
    const usual = data.usual[of][figure];
    if (!usual) return 1;
    return figure === 0 ? value / usual : usual / Math.max(value, 1);
  };
  const ofPair = (pair) => {
    if (pair < 0) return null;
    if (rail >= 0) return share(raw(pair, rail), rail);
    let worst = null;
    for (let of = 0; of < rails; of++) {
      const one = share(raw(pair, of), of);
      if (one !== null && (worst === null || one < worst)) worst = one;
    }
    return worst;
  };
  const ofNode = (node, of) => {
    let best = UNTRIED;
    for (const round of at) {
      const pair = round[node];
      if (pair < 0) continue;
      const value = raw(pair, of);
      if (value >= UNTRIED) { if (best === UNTRIED) best = value; }
      else best = best >= UNTRIED ? value : better(best, value);
    }
    return best;
  };

  const text = (value) => {
    if (value === FAILED) return "failed";
    if (value === UNTRIED) return "not tried";
    return figure === 0 ? `${value / 10} Gbit/s` : `${value / 10} µs`;
  };
  const say = (what) => { $("told").textContent = what || "Point at a cell to see its nodes and values."; };

  const style = () => getComputedStyle(document.documentElement);
  let paint = {};
  const color = (good) => {
    if (good === null) return paint.none;
    if (good < 0) return paint.failed;
    if (good >= 0.95) return paint.c0;
    if (good >= 0.85) return paint.c1;
    if (good >= 0.7) return paint.c2;
    return good >= 0.5 ? paint.c3 : paint.c4;
  };

  // A map with a row for each of `rows` and a column for each node, broken into bands. Cells have a
  // width and a height between the least and the most.
  const line = 13;
  const draw = (canvas, rows, [least, most, highest], value, label, marked) => {
    const width = Math.max(320, Math.min(canvas.parentElement.clientWidth, 1148));
    const left = width < 600 ? 84 : 120;
    const wide = Math.max(least, Math.min(most, Math.floor((width - left) / nodes)));
    const tall = Math.min(wide, highest);
    const gap = tall > 8 ? 1 : 0;
    const fitting = Math.max(8, Math.floor((width - left) / wide));
    // Round numbers are found more easily.
    const columns = fitting >= nodes ? nodes : fitting < 20 ? fitting : fitting - fitting % 10;
    const bands = Math.ceil(nodes / columns), high = rows * tall + 22;
    const scale = window.devicePixelRatio || 1;
    // A canvas that is too high for the browser would stay empty.
    const room = Math.max(1, Math.floor(30000 / scale / high));
    const shown = Math.min(bands, room);
    canvas.width = width * scale;
    canvas.height = shown * high * scale;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${shown * high}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const clip = (name, room) => {
      if (pen.measureText(name).width <= room) return name;
      let end = name.length;
      while (end > 1 && pen.measureText(`${name.slice(0, end)}…`).width > room) end--;
      return `${name.slice(0, end)}…`;
    };
    // Names and labels stand where there is room for them.
    const longest = Math.max(...data.names.map((name) => pen.measureText(name).width));
    const needed = Math.max(1, Math.ceil(Math.min(longest + 12, 160) / wide));
    const named = needed > 2 ? Math.ceil(needed / 5) * 5 : needed;
    const labelled = Math.ceil(line / tall);
    for (let band = 0; band < shown; band++) {
      const top = band * high, first = band * columns, last = Math.min(nodes, first + columns) - 1;
      pen.fillStyle = paint.soft;
      pen.textAlign = "left";
      for (let node = first; node <= last; node += named) {
        const name = clip(data.names[node], named * wide - 4), x = left + (node - first) * wide;
        if (x + pen.measureText(name).width <= width) pen.fillText(name, x, top + 8);
      }
      for (let row = 0; row < rows; row++) {
        const y = top + 16 + row * tall;
        if (row % labelled === 0) {
          pen.fillStyle = paint.soft;
          pen.textAlign = "right";
          pen.fillText(clip(label(row), left - 8), left - 6, y + tall / 2);
        }
        for (let node = first; node <= last; node++) {
          pen.fillStyle = color(value(row, node));
          pen.fillRect(left + (node - first) * wide, y, wide - gap, tall - gap);
        }
      }
      pen.strokeStyle = paint.text;
      pen.lineWidth = tall > 8 ? 2 : 1.5;
      for (let row = 0; row < rows; row++) {
        for (let node = first; node <= last; node++) {
          if (marked(row, node)) {
            const x = left + (node - first) * wide, y = top + 16 + row * tall;
            pen.strokeRect(x - 0.5, y - 0.5, wide - gap + 1, tall - gap + 1);
          }
        }
      }
    }
    canvas.find = (event) => {
      const box = canvas.getBoundingClientRect();
      const x = (event.clientX - box.left) * width / box.width - left;
      const y = (event.clientY - box.top) * (shown * high) / box.height;
      const band = Math.floor(y / high), row = Math.floor((y - band * high - 16) / tall);
      const column = Math.floor(x / wide), node = band * columns + column;
      const isCell = row >= 0 && row < rows && column >= 0 && column < columns && node < nodes;
      return isCell ? [row, node] : null;
    };
  };

  const nodeMarks = new Set(data.marked.map(([node, of]) => `${node}/${of}`));
  const slowMarks = new Set(data.slow.map(([node, of]) => `${node}/${of}`));
  const isOf = (marks, node, of) => marks.has(`${node}/${of}`) || marks.has(`${node}/-1`);
  // A node that is named has the color of what it is named for, however well its best pair went.
  const ofNamed = (node, of, good) => {
    if (data.gone.includes(node)) return -1;
    if (isOf(slowMarks, node, of)) return good === null || good < 0 ? good : Math.min(good, 0);
    return isOf(nodeMarks, node, of) ? -1 : good;
  };
  const pairMarks = new Set(data.between.map(([a, b, of]) => `${a}-${b}/${of}`));
  const isMarkedPair = (pair) => {
    if (pair < 0) return false;
    const key = `${pairs[3 * pair + 1]}-${pairs[3 * pair + 2]}`;
    if (pairMarks.has(`${key}/-1`)) return true;
    if (rail >= 0) return pairMarks.has(`${key}/${rail}`);
    for (let of = 0; of < rails; of++) if (pairMarks.has(`${key}/${of}`)) return true;
    return false;
  };
  const round = (row) => row < data.first ? `round ${row + 1}` : `again ${row - data.first + 1}`;

  const all = () => {
    const of = style();
    for (const name of ["text", "soft", "c0", "c1", "c2", "c3", "c4", "failed", "none"]) {
      paint[name] = of.getPropertyValue(`--${name}`).trim();
    }
    const best = Array.from({ length: rails }, (_, of) =>
      Array.from({ length: nodes }, (_, node) => ofNode(node, of)));
    draw($("nodes"), rails, [7, 72, 16], (of, node) => ofNamed(node, of, share(best[of][node], of)),
      (of) => data.rails[of], (of, node) => isOf(nodeMarks, node, of));
    $("nodes").tell = ([of, node]) => {
      const state = data.gone.includes(node) ? "missing" : `${text(best[of][node])} at best`;
      return `${data.names[node]} (node ${node}), ${data.rails[of]}: ${state}`;
    };
    const rows = isFull ? nodes : rounds;
    const row = (of) => isFull ? data.names[of] : round(of);
    draw($("pairs"), rows, isFull ? [2, 72, 24] : [7, 72, 16], (of, node) => ofPair(cell(of, node)), row,
      (of, node) => isMarkedPair(cell(of, node)));
    $("pairs").tell = ([of, node]) => {
      const pair = cell(of, node);
      if (pair < 0) return isFull && of === node ? data.names[node] : `${data.names[node]}, ${row(of)}: no pair`;
      const [a, b, when] = [pairs[3 * pair + 1], pairs[3 * pair + 2], pairs[3 * pair]];
      const which = rail >= 0 ? [rail] : Array.from({ length: rails }, (_, of) => of);
      const said = which.map((of) => `${data.rails[of]} ${text(raw(pair, of))}`).join(", ");
      return `${data.names[a]} – ${data.names[b]}, ${round(when)}: ${said}`;
    };
    say();
  };

  for (const name of ["nodes", "pairs"]) {
    const canvas = $(name);
    for (const kind of ["pointermove", "pointerdown"]) {
      canvas.addEventListener(kind, (event) => {
        const found = canvas.find(event);
        say(found && canvas.tell(found));
      });
    }
    canvas.addEventListener("pointerleave", () => say());
  }
  data.rails.forEach((name, of) => {
    const option = document.createElement("option");
    option.value = of;
    option.textContent = name;
    $("rail").append(option);
  });
  $("rail").addEventListener("change", (event) => { rail = Number(event.target.value); all(); });
  $("figure").addEventListener("change", (event) => { figure = Number(event.target.value); all(); });
  $("order").textContent = isFull
    ? "Each node with each other one."
    : "Each node, with its pair in each round: neighbors first, then at a distance of 2, 4, 8 ...";
  let waiting = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(all);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  all();
})();
