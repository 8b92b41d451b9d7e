// Ansible managed: sparkthor.cluster
// Which model a request is for. nginx sends it there; nothing of the answer passes through this.

import scan from 'scan.js';

// bytes that are looked at in one go, and steps; then others have their turn
const WINDOW = 262144;
const STEPS = 1000;
// of one body; a step is a byte of structure or an escaped quote, and a window costs some as well
const MOST_STEPS = 1000000;
const WINDOW_STEPS = 1000;
// what a value may be in at most; Python's json takes about a thousand
const DEEPEST = 500;
// as Starlette takes them
const MOST_PARTS = 2000;
const LONGEST_HEADER = 4096;
const LONGEST_NAME = 256;
const NO_BODY = ['GET', 'HEAD', 'DELETE'];

function refuse(r, status, message, code) {
    r.headersOut['Content-Type'] = 'application/json';
    const error = {message: message, type: 'invalid_request_error', param: 'model', code: code};
    r.return(status, JSON.stringify({error: error}) + '\n');
}

const BAD_JSON = [400, 'The body is not a JSON object, or has more than 500 levels.', 'invalid_json'];
const BAD_FORM = [400, 'The body is not multipart/form-data with the boundary of its Content-Type, or has more than '
    + '2000 parts.', 'invalid_form'];
const TOO_MUCH = [413, 'The body has more structure than is read here: send fewer or longer strings.',
    'request_too_complex'];
const ENCODED = [415, 'The body is compressed: send it as it is, without Content-Encoding.', 'content_encoding'];

// Each request pays for what is looked at; true where it has paid for all.
async function pay(work, steps) {
    work.left -= steps;
    work.slice -= steps;
    if (work.slice <= 0) {
        work.slice = STEPS;
        // nginx would come back from none at all before it has looked at any other connection
        await new Promise((resolve) => setTimeout(resolve, 1));
    }
    return work.left < 0;
}

// Whether Python's json takes it for UTF-16 or UTF-32, of which the bytes read here would be something else.
function wide(body) {
    return body.length > 1 && (!body[0] || !body[1] || (body[0] === 0xff && body[1] === 0xfe)
        || (body[0] === 0xfe && body[1] === 0xff));
}

async function inJson(body, work) {
    if (wide(body)) {
        return {refused: BAD_JSON};
    }
    const state = scan.begin({model: 1}, false);
    // as Python reads it
    const from = body.length > 2 && body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf ? 3 : 0;
    for (state.base = from; state.base < body.length; state.base += WINDOW) {
        const part = body.subarray(state.base, Math.min(state.base + WINDOW, body.length));
        let at = 0;
        while (at < part.length) {
            at = scan.read(state, part, at, STEPS);
            if (await pay(work, STEPS - state.steps + WINDOW_STEPS * part.length / WINDOW)) {
                return {refused: TOO_MUCH};
            }
            if (state.deepest > DEEPEST) {
                return {refused: BAD_JSON};
            }
        }
    }
    if (!scan.whole(state)) {
        return {refused: BAD_JSON};
    }
    const model = state.found.model;
    return typeof model === 'string' ? {model: model, place: state.places.model} : {model: ''};
}

// A parameter of a header, such as name in: form-data; name="model"
function parameter(header, wanted) {
    let at = header.indexOf(';');
    while (at >= 0) {
        const equals = header.indexOf('=', at);
        if (equals < 0) {
            return undefined;
        }
        const name = header.slice(at + 1, equals).trim().toLowerCase();
        let end = equals + 2;
        let value;
        if (header[equals + 1] === '"') {
            while (end < header.length && header[end] !== '"') {
                end += header[end] === '\\' ? 2 : 1;
            }
            value = header.slice(equals + 2, end);
            at = header.indexOf(';', end);
        } else {
            at = header.indexOf(';', equals);
            value = header.slice(equals + 1, at < 0 ? header.length : at).trim();
        }
        if (name === wanted) {
            return value;
        }
    }
    return undefined;
}

function isModel(head) {
    return head.split('\r\n').some((line) => line.toLowerCase().startsWith('content-disposition:')
        && parameter(line, 'name') === 'model' && parameter(line, 'filename') === undefined);
}

// Where these bytes are, at this place or after it; -1 for nowhere, -2 where that took too much.
async function search(body, bytes, at, work) {
    while (at + bytes.length <= body.length) {
        const part = body.subarray(at, Math.min(at + WINDOW + bytes.length, body.length));
        const found = part.indexOf(bytes);
        if (await pay(work, WINDOW_STEPS * (found < 0 ? part.length : found) / WINDOW + 1)) {
            return -2;
        }
        if (found >= 0) {
            return at + found;
        }
        at += WINDOW;
    }
    return -1;
}

async function inForm(body, boundary, work) {
    const first = Buffer.from('--' + boundary);
    const other = Buffer.from('\r\n--' + boundary);
    let model = '';
    if (!boundary || body.length < first.length || body.compare(first, 0, first.length, 0, first.length)) {
        return {refused: BAD_FORM};
    }
    let at = first.length;
    for (let parts = 0; parts < MOST_PARTS; parts++) {
        const end = await search(body, other, at, work);
        // after the last boundary nothing counts
        if (body[at] === 45 && body[at + 1] === 45) {
            return {model: model};
        }
        if (end < 0) {
            return {refused: end === -2 ? TOO_MUCH : BAD_FORM};
        }
        const head = body.subarray(at, Math.min(at + LONGEST_HEADER, end));
        const empty = head.indexOf('\r\n\r\n');
        // the length of a header is paid for where it is read
        if (empty >= 0 && head.subarray(0, empty).indexOf('model') >= 0) {
            await pay(work, empty);
            const from = at + empty + 4;
            if (isModel(head.toString('utf8', 0, empty))) {
                model = end - from > LONGEST_NAME ? '' : body.toString('utf8', from, end);
            }
        }
        at = end + other.length;
    }
    return {refused: BAD_FORM};
}

async function named(r) {
    if (r.uri.startsWith('/v1/models/')) {
        return {model: r.uri.slice('/v1/models/'.length)};
    }
    if (NO_BODY.indexOf(r.method) >= 0) {
        return {model: typeof r.args.model === 'string' ? r.args.model : ''};
    }
    if ((r.headersIn['Content-Encoding'] || 'identity').toLowerCase() !== 'identity') {
        return {refused: ENCODED};
    }
    const body = r.requestBuffer || Buffer.from('');
    const work = {left: MOST_STEPS, slice: STEPS};
    const type = r.headersIn['Content-Type'] || '';
    if (type.toLowerCase().startsWith('multipart/form-data')) {
        return await inForm(body, parameter(type, 'boundary'), work);
    }
    return await inJson(body, work);
}

async function route(r) {
    const asked = await named(r);
    if (asked.refused) {
        return refuse(r, asked.refused[0], asked.refused[1], asked.refused[2]);
    }
    if (!asked.model) {
        return refuse(r, 400, 'Say which model: GET /v1/models lists them.', 'model_required');
    }
    // it is logged as well
    r.variables.sparkthor_model = asked.model.slice(0, LONGEST_NAME);
    r.variables.sparkthor_place = asked.place ? asked.place.join(' ') : '';
    const number = r.variables.sparkthor_route;
    if (!number) {
        return refuse(r, 404, 'No such model is served here: GET /v1/models lists those that are.', 'model_not_found');
    }
    r.internalRedirect('@model_' + number);
}

// The same request for the model that answers instead of the one that it names; empty where that is not in JSON.
function instead(r) {
    const place = (r.variables.sparkthor_place || '').split(' ');
    if (place.length !== 2) {
        return '';
    }
    const body = r.requestBuffer;
    const name = Buffer.from(JSON.stringify(r.variables.sparkthor_target));
    return Buffer.concat([body.subarray(0, Number(place[0])), name, body.subarray(Number(place[1]), body.length)]);
}

// What an engine says that it serves; nothing where that is no list, which may not cost the others theirs.
function listed(answer) {
    try {
        const data = JSON.parse(answer.responseText).data;
        return Array.isArray(data) ? data : null;
    } catch (error) {
        return null;
    }
}

async function models(r) {
    const groups = r.variables.sparkthor_groups.split(' ');
    const answers = await Promise.all(groups.map((group) => r.subrequest('/models/' + group)));
    const found = [];
    // replicas say the same
    const known = {};
    let away = 0;
    for (let i = 0; i < answers.length; i++) {
        const own = answers[i].status === 200 ? listed(answers[i]) : null;
        if (own) {
            own.filter((model) => !known['=' + (model && model.id)]).forEach((model) => {
                known['=' + (model && model.id)] = true;
                found.push(model);
            });
        } else if (answers[i].status === 200 || answers[i].status >= 500) {
            away++;
        }
    }
    if (away && !found.length) {
        return r.internalRedirect('@away');
    }
    r.headersOut['Content-Type'] = 'application/json';
    r.return(200, JSON.stringify({object: 'list', data: found}) + '\n');
}

export default {route, instead, models};
