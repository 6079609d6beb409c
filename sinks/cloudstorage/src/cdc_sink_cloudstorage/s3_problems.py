"""What the errors of S3 clients mean."""

from __future__ import annotations

from typing import Any

from botocore import exceptions

from cdc_sink_cloudstorage.authentication import is_specified
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.store_problem import StoreProblem

_PERMISSIONS = "s3:PutObject, s3:ListBucket and the other permissions in the documentation"
_WRONG_REGION = {
    "301",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "InvalidRegion",
    "PermanentRedirect",
}
_DENIED = {"403", "AccessDenied", "AllAccessDisabled", "AccountProblem", "Forbidden", "InvalidObjectState"}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"}
_BUSY = {
    *("BandwidthLimitExceeded", "InternalError", "OperationAborted", "RequestLimitExceeded", "RequestThrottled"),
    *("RequestThrottledException", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling"),
    *("ThrottlingException", "TooManyRequests", "TooManyRequestsException"),
}
_PERMANENT = {
    "EntityTooLarge": StoreProblem(
        reason="the file is larger than S3 allows", remedy="Lower file_size", permanent=True
    ),
    "InvalidBucketName": StoreProblem(
        reason="the bucket name is not valid", remedy="Correct the bucket name in the sink's URI", permanent=True
    ),
    "KeyTooLongError": StoreProblem(
        reason="the path is longer than S3 allows",
        remedy="Shorten topic_prefix or the path of the sink's URI",
        permanent=True,
    ),
}


def s3_problem(error: BaseException, options: CloudStorageOptions) -> StoreProblem | None:
    """Return what *error*, of s3fs or botocore, means to a user who has set *options*; None when that is not known."""
    response: dict[str, Any] = getattr(error, "response", None) or getattr(error.__cause__, "response", None) or {}
    code = str(response.get("Error", {}).get("Code", ""))
    if code:
        return _with_response(code, response, options)
    return _without_response(error, options)


def _with_response(code: str, response: dict[str, Any], options: CloudStorageOptions) -> StoreProblem | None:
    where = "" if is_specified(options, "S3") else " in the environment"
    if code == "InvalidAccessKeyId":
        return StoreProblem(
            reason="S3 does not know the access key", remedy=f"Check AWS_ACCESS_KEY_ID{where}", repairable=True
        )
    if code == "SignatureDoesNotMatch":
        return StoreProblem(
            reason="the secret key does not match the access key",
            remedy=f"Check AWS_SECRET_ACCESS_KEY{where or ', which must be percent-encoded inside a URI'}",
            repairable=True,
        )
    if code in _EXPIRED:
        return StoreProblem(
            reason="the temporary credentials have expired or are not valid",
            remedy=f"Get new credentials, and set AWS_SESSION_TOKEN and both keys{where}",
            repairable=True,
        )
    if code in _DENIED:
        return StoreProblem(
            reason="these credentials lack permissions", remedy=f"Grant them {_PERMISSIONS}", repairable=True
        )
    if code == "NoSuchBucket":
        return StoreProblem(
            reason="the bucket does not exist",
            remedy="Create the bucket, or correct its name in the sink's URI",
            repairable=True,
        )
    if code in _WRONG_REGION:
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        region = response["Error"].get("Region") or headers.get("x-amz-bucket-region") or ""
        return StoreProblem(
            reason=f"the bucket is in another region{f', {region}' if region else ''}",
            remedy=f"Set AWS_REGION={region}" if region else "Set AWS_REGION to the bucket's region",
            permanent=True,
        )
    if code == "InvalidStorageClass":
        return StoreProblem(
            reason=f"the store does not know the storage class '{options.s3_storage_class}'",
            remedy="Correct S3_STORAGE_CLASS",
            permanent=True,
        )
    if code == "RequestTimeTooSkewed":
        return StoreProblem(
            reason="this machine's clock differs too much from the store's",
            remedy="Correct this machine's clock",
            repairable=True,
        )
    if code in _PERMANENT:
        return _PERMANENT[code]
    message = str(response["Error"].get("Message") or code).splitlines()[0].rstrip(".")
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or (code if code.isdigit() else 0))
    return StoreProblem.of_answer(
        status,
        reason=f"the store answered '{message}'",
        remedy=f"Look up {code} in the documentation of S3",
        busy=code in _BUSY,
    )


def _without_response(error: BaseException, options: CloudStorageOptions) -> StoreProblem | None:
    endpoint = f"'{options.aws_endpoint}'" if options.aws_endpoint else "of S3"
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return StoreProblem(
            reason="no usable credentials for S3 were found",
            remedy="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY with AUTH=specified or in the environment, or set"
            " AWS_PROFILE",
            repairable=True,
        )
    if isinstance(error, exceptions.ProfileNotFound):
        return StoreProblem(reason=str(error), remedy="Correct AWS_PROFILE, or create the profile", repairable=True)
    if isinstance(error, exceptions.NoRegionError):
        return StoreProblem(reason="the region is not known", remedy="Set AWS_REGION", repairable=True)
    if isinstance(error, exceptions.InvalidRegionError):
        return StoreProblem(
            reason=f"'{options.aws_region}' is not a region", remedy="Correct AWS_REGION", permanent=True
        )
    if isinstance(error, exceptions.SSLError):
        return StoreProblem(
            reason=f"the endpoint {endpoint} has a certificate that is not trusted",
            remedy="Correct AWS_ENDPOINT, or set AWS_CA_BUNDLE to a file with the certificates of its authority",
            repairable=True,
        )
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError | ConnectionError | TimeoutError):
        return StoreProblem(
            reason=f"the endpoint {endpoint} cannot be reached",
            remedy=f"Check the network and {'AWS_ENDPOINT' if options.aws_endpoint else 'AWS_REGION'}",
        )
    if isinstance(error, ValueError) and "endpoint" in str(error).lower():
        return StoreProblem(
            reason=f"{endpoint} is not an endpoint", remedy="Write AWS_ENDPOINT as https://host:port", permanent=True
        )
    return None
