package handler

// SaidNotYet lets tests interpret the output of a handler that ends with ExitTryAgain.
var SaidNotYet = notYet
