// Ansible managed: sparkthor.cluster
// Reads single values of a JSON text that comes in parts, without keeping it: native searches jump over strings, and no
// expression and no parser ever sees the text. What is outside of strings costs time by its bytes of structure.
// A tree says what is wanted: {usage: {prompt_tokens: 1}} is the value of that key of that object. The last one counts,
// as for Python's json.

const LINE = 10, QUOTE = 34, COLON = 58, OPEN = 123, CLOSE = 125, LIST = 91, LIST_END = 93, BACKSLASH = 92;
// bytes of a key or of a value, as they are written; a longer one is none that is wanted
const LONGEST = 2048;
// in steps: njs frees nothing before the request has ended
const KEPT = 20;
// no tree has more levels
const LEVELS = 4;

// lines: each line is a text of its own, as in a stream of events
function begin(tree, lines) {
    return {
        tree: tree, lines: lines, found: {}, places: {}, texts: 0, wrong: false, depth: 0, deepest: 0, nodes: [],
        string: false, wanted: false, slashes: 0, pieces: null, size: 0, from: 0, start: 0,
        // after a wanted key: 1 before its colon, 2 before its value, 3 in a number
        after: 0, key: '', number: '', base: 0,
    };
}

// Keeps a wanted string, or its begin, up to this place in this part.
function keep(state, data, to) {
    state.size += to - state.from;
    if (state.size <= LONGEST) {
        state.pieces = state.pieces || [];
        state.pieces.push(Buffer.from(data.subarray(state.from, to)));
    }
}

function text(state, data, to) {
    if (state.size + to - state.from > LONGEST) {
        return 'longer than ' + LONGEST + ' bytes';
    }
    let raw;
    if (state.size) {
        keep(state, data, to);
        raw = Buffer.concat(state.pieces).toString();
    } else {
        raw = data.toString('utf8', state.from, to);
    }
    if (raw.indexOf('\\') < 0) {
        return raw;
    }
    try {
        return JSON.parse('"' + raw + '"');
    } catch (error) {
        return '';
    }
}

// A string has ended before this place: the value that was waited for, or perhaps a key.
function closed(state, data, at) {
    state.string = false;
    if (!state.wanted) {
        return;
    }
    state.steps -= KEPT;
    const said = text(state, data, at);
    if (state.after === 2) {
        state.after = 0;
        state.found[state.key] = said;
        state.places[state.key] = [state.start, state.base + at + 1];
        return;
    }
    if (Object.prototype.hasOwnProperty.call(state.nodes[state.depth], said)) {
        state.key = said;
        state.after = 1;
    }
}

// In a string: to its end, to a quote that does not end it, or to the end of this part.
function inString(state, data, at) {
    const end = data.indexOf(QUOTE, at);
    const stop = end < 0 ? data.length : end;
    let run = 0;
    while (stop - run > at && data[stop - run - 1] === BACKSLASH) {
        run++;
    }
    state.steps -= run;
    const odd = (run === stop - at ? run + state.slashes : run) % 2;
    state.slashes = end < 0 ? odd : 0;
    if (end >= 0 && !odd) {
        closed(state, data, end);
    }
    return end < 0 ? stop : end + 1;
}

// After a wanted key: one byte.
function afterKey(state, data, at) {
    const byte = data[at];
    if (state.after === 3) {
        if (byte >= 48 && byte <= 57) {
            state.number += String.fromCharCode(byte);
            return at + 1;
        }
        state.after = 0;
        state.found[state.key] = Number(state.number.slice(0, 15));
        return at;
    }
    if (byte === 32 || byte === 9 || byte === 13 || (byte === LINE && !state.lines)) {
        return at + 1;
    }
    if (state.after === 1) {
        state.after = byte === COLON ? 2 : 0;
        return byte === COLON ? at + 1 : at;
    }
    if (byte === QUOTE) {
        return at;
    }
    state.after = 0;
    const leaf = state.nodes[state.depth][state.key] === 1;
    if (leaf && byte >= 48 && byte <= 57) {
        state.after = 3;
        state.number = '';
    } else if (leaf) {
        state.found[state.key] = undefined;
    } else if (byte === OPEN) {
        state.after = 4;
    }
    return at;
}

// A byte of structure outside of strings.
function structure(state, byte, at) {
    if (byte === QUOTE) {
        const node = state.nodes[state.depth];
        state.string = true;
        state.slashes = 0;
        state.start = state.base + at;
        state.from = at + 1;
        state.size = 0;
        state.pieces = null;
        state.wanted = Boolean(node) && (state.after !== 2 || node[state.key] === 1);
        if (!state.wanted) {
            state.after = 0;
        }
    } else if (byte === OPEN || byte === LIST) {
        if (!state.depth) {
            // one object is a text; in lines there may be anything else
            state.wrong = state.wrong || (!state.lines && (state.texts > 0 || byte === LIST));
            state.texts += byte === OPEN ? 1 : 0;
        }
        const inner = state.depth ? (state.after === 4 ? state.nodes[state.depth][state.key] : null) : state.tree;
        state.after = 0;
        state.depth++;
        state.deepest = Math.max(state.deepest, state.depth);
        if (state.depth <= LEVELS) {
            state.nodes[state.depth] = byte === OPEN ? inner : null;
        }
    } else if (byte === LINE) {
        state.depth = 0;
        state.after = 0;
    } else {
        state.wrong = state.wrong || (!state.depth && !state.lines);
        state.depth = Math.max(0, state.depth - 1);
    }
}

function next(data, byte, at) {
    const found = data.indexOf(byte, at);
    return found < 0 ? data.length : found;
}

// Goes on from a place in this part, for so many steps at most; says how far it came.
function read(state, data, at, steps) {
    const size = data.length;
    let quote = -1, open = -1, close = -1, list = -1, end = -1, line = state.lines ? -1 : size;
    state.steps = steps;
    while (at < size && state.steps > 0 && !state.wrong) {
        state.steps--;
        if (state.string) {
            at = inString(state, data, at);
            continue;
        }
        if (state.after > 0 && state.after < 4) {
            const before = state.after;
            at = afterKey(state, data, at);
            if (state.after !== before || data[at] !== QUOTE) {
                continue;
            }
        }
        quote = quote < at ? next(data, QUOTE, at) : quote;
        open = open < at ? next(data, OPEN, at) : open;
        close = close < at ? next(data, CLOSE, at) : close;
        list = list < at ? next(data, LIST, at) : list;
        end = end < at ? next(data, LIST_END, at) : end;
        line = line < at ? next(data, LINE, at) : line;
        at = Math.min(quote, open, close, list, end, line);
        if (at < size) {
            structure(state, data[at], at);
            at++;
        }
    }
    if (at === size && state.string && state.wanted) {
        keep(state, data, size);
        state.from = 0;
    }
    return state.wrong ? size : at;
}

// Whether a text that has come to its end was one.
function whole(state) {
    return !state.wrong && !state.string && !state.depth && state.texts > 0;
}

export default {begin, read, whole};
