"""Amazon Bedrock: Converse and ConverseStream, as the Bedrock Runtime API describes them.

Providers alone speak it. Requests are signed by `headrace.protocol.aws.sigv4` (service "bedrock")
or carry an API key; streams are AWS event streams. A reply names neither an id nor its model: the
id is the header x-amzn-requestid.

Source: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
"""

from headrace.protocol.dialects.bedrock.embeddings import BedrockEmbeddings
from headrace.protocol.dialects.bedrock.provider import BedrockProvider

PROVIDER = BedrockProvider()
EMBEDDINGS = BedrockEmbeddings()

__all__ = ["EMBEDDINGS", "PROVIDER", "BedrockEmbeddings", "BedrockProvider"]
