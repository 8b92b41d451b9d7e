// Ansible managed: sparkthor.cluster
// Which model a request is for. nginx sends it there; nothing of the answer passes through this.

function refuse(r, status, message, code) {
    r.headersOut['Content-Type'] = 'application/json';
    const error = {message: message, type: 'invalid_request_error', param: 'model', code: code};
    r.return(status, JSON.stringify({error: error}) + '\n');
}

// undefined for a body that is none
function named(r) {
    const path = /^\/v1\/models\/(.+)$/.exec(r.uri);
    if (path) {
        return path[1];
    }
    if (r.method === 'GET' || r.method === 'HEAD' || r.method === 'DELETE') {
        return r.args.model || '';
    }
    const text = r.requestText || '';
    if (/^multipart\/form-data/i.test(r.headersIn['Content-Type'] || '')) {
        const part = /; name="model"\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]*)/.exec(text);
        return part ? part[1] : '';
    }
    try {
        const model = JSON.parse(text).model;
        return typeof model === 'string' ? model : '';
    } catch (error) {
        return undefined;
    }
}

function route(r) {
    const model = named(r);
    if (model === undefined) {
        return refuse(r, 400, 'The body is not a JSON object, or has more than 31 levels.', 'invalid_json');
    }
    if (!model) {
        return refuse(r, 400, 'Say which model: GET /v1/models lists them.', 'model_required');
    }
    // it is logged as well
    r.variables.sparkthor_model = model.slice(0, 256);
    const number = r.variables.sparkthor_route;
    if (!number) {
        return refuse(r, 404, 'No such model is served here: GET /v1/models lists those that are.', 'model_not_found');
    }
    r.internalRedirect('@model_' + number);
}

// The same request for the model that answers instead of the one that it names; empty where that is not in JSON.
function instead(r) {
    try {
        const asked = JSON.parse(r.requestText);
        asked.model = r.variables.sparkthor_target;
        return JSON.stringify(asked);
    } catch (error) {
        return '';
    }
}

async function models(r) {
    const numbers = r.variables.sparkthor_routes.split(' ');
    const answers = await Promise.all(numbers.map((number) => r.subrequest('/models/' + number)));
    const found = [];
    let away = 0;
    for (let i = 0; i < answers.length; i++) {
        if (answers[i].status === 200) {
            JSON.parse(answers[i].responseText).data.forEach((model) => found.push(model));
        } else if (answers[i].status >= 500) {
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
