exports.double = (number) => 2 * number;
