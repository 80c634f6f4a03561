package wire

// AnswerCodec is what those who answer write with.
var AnswerCodec answerCodec
